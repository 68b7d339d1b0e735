//! Frames that are not RoCE: those received, and those that the neighbour protocols send.

use uroce_engine::Control;
use uroce_transport::Instant;

use super::Thread;
use super::counts::Counts;

/// Largest number of frames that are handled before other inputs are.
const FRAMES: usize = 64;

impl Thread {
    pub(super) fn take_frames(&mut self, now: Instant) -> bool {
        for taken in 0..FRAMES {
            let Some(frame) = self.control.recv_frame() else { return taken > 0 };
            self.counts.frames_in += 1;
            let at = usize::from(frame.port).wrapping_sub(1);
            let Some(neighbours) = self.ports.neighbours.get_mut(at) else { continue };
            let Self { control, counts, .. } = self;
            let mut emit = |bytes: &[u8]| send(control, counts, frame.port, bytes);
            // An ignored frame is counted by reason.
            let _ = neighbours.handle_frame(now, frame.mbuf.as_slice(), &mut emit);
        }
        true
    }

    pub(super) fn ask_neighbours(&mut self) {
        let now = self.now();
        let Self { control, counts, ports, .. } = self;
        for (neighbours, port) in ports.neighbours.iter_mut().zip(1..) {
            if neighbours.next_timeout().is_some_and(|due| due <= now) {
                neighbours.handle_timeout(now, &mut |bytes| send(control, counts, port, bytes));
            }
        }
    }
}

pub(super) fn send(control: &mut Control, counts: &mut Counts, port: u8, frame: &[u8]) {
    match control.send_frame(port, frame) {
        Ok(()) => counts.frames_out += 1,
        // The protocols repeat a lost frame.
        Err(_) => counts.frames_lost += 1,
    }
}
