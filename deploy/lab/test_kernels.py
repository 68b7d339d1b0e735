"""Tests of the choice of a guest's kernel, and of the cases that only some kernels have."""

import pathlib
import tempfile
import types
import unittest
from unittest import mock

from dataplane import cases
from dataplane.peers import GuestPeer
from dataplane.uroce import UrocePeer
from report.failure import LabFailure
from vm import image


class Cache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)
        (self.cache / "packages").mkdir()

    def add(self, kernel, fingerprint, *packages):
        """Adds an image of packages to the cache."""
        made = image.Image(self.cache / f"image-{kernel}-{fingerprint}")
        made.folder.mkdir()
        (made.folder / "packages").write_text("\n".join(packages) + "\n")
        for package in packages:
            (self.cache / "packages" / f"{package.replace('=', '_')}_amd64.deb").touch()
        return made

    def kept(self):
        """The names of images and packages in the cache."""
        return {path.name for path in [*self.cache.glob("image-*"), *self.cache.glob("*/*.deb")]}

    def test_the_image_of_another_kernel_and_its_packages_stay(self):
        self.add("stock", "aa", "linux=6.1", "libc6=2")
        self.add("6.12", "bb", "linux=6.12.1", "libc6=1")
        present = self.add("6.12", "cc", "linux=6.12.2", "libc6=2")
        (self.cache / "image-0123456789abcdef").mkdir()
        image.remove_others(self.cache, "6.12", present)
        self.assertEqual(self.kept(), {
            "image-stock-aa", "image-6.12-cc", "linux_6.1_amd64.deb", "linux_6.12.2_amd64.deb",
            "libc6_2_amd64.deb"})

    def test_the_last_image_of_the_stock_kernel_is_found_without_apt(self):
        with mock.patch.object(image, "cache_folder", return_value=self.cache):
            self.assertIsNone(image.cached())
            stock = self.add("stock", "aa", "linux=6.1")
            self.add("6.12", "bb", "linux=6.12.2")
            self.assertEqual(image.cached().folder, stock.folder)

    def test_the_guests_program_is_part_of_an_images_name(self):
        first = image.fingerprint(["linux=6.12"])
        changed = self.cache / "changed.c"
        changed.write_text("int main(void) { return 0; }\n")
        with mock.patch.object(image, "PLACEMENT", changed):
            self.assertNotEqual(image.fingerprint(["linux=6.12"]), first)


class Modules(unittest.TestCase):
    def copied(self, built_in):
        """The modules of a guest whose kernel has some of them built in."""
        with tempfile.TemporaryDirectory() as folder:
            stage, root = pathlib.Path(folder, "stage"), pathlib.Path(folder, "root")
            modules = stage / "lib/modules/6.12"
            (modules / "kernel").mkdir(parents=True)
            (root / "modules").mkdir(parents=True)
            for name in image.MODULES:
                if name != "virtio_pci":
                    (modules / "kernel" / f"{name.replace('_', '-')}.ko").write_bytes(
                        b"\0depends=virtio-pci\0")
            (modules / "modules.builtin").write_text(built_in)
            image.copy_modules(stage, root, "6.12")
            return [path.name.partition("-")[2] for path in sorted(root.glob("modules/*"))]

    def test_a_module_that_is_built_in_needs_no_file(self):
        copied = self.copied("kernel/drivers/virtio/virtio_pci.ko\n")
        self.assertEqual(copied, [f"{name}.ko" for name in image.MODULES if name != "virtio_pci"])

    def test_a_module_that_the_kernel_lacks_is_named(self):
        with self.assertRaisesRegex(LabFailure, "6.12 has no module virtio_pci$"):
            self.copied("kernel/lib/crc32.ko\n")


class Cases(unittest.TestCase):
    def test_a_kernel_without_atomic_write_and_flush_has_no_case_of_them(self):
        without, having = cases.dataplane(False), cases.dataplane(False, places=True)
        self.assertEqual(having[:len(without)], without)
        more = having[len(without):]
        self.assertEqual({case.program.name for case in more}, {"placement"})
        self.assertEqual(len({case.name for case in more}), len(more))

    def test_the_laboratorys_own_program_is_tested_without_uroce(self):
        names = [case.program.name for case in cases.selftest(places=True)]
        self.assertEqual(names.count("placement"), 5)
        self.assertNotIn("placement", [case.program.name for case in cases.selftest()])

    def test_both_ends_are_asked_for_everything(self):
        for roles in (cases.UROCE_SERVES, cases.RXE_SERVES):
            for flushed, links, wrong in ((False, {"tap", "vhost", "udp"}, {"", "address"}),
                                          (True, {"mended"}, {"", "range", "rights"})):
                mine = [case for case in cases.placement() if case.program.flushed == flushed
                        and (case.server, case.client) == roles]
                self.assertEqual({case.family for case in mine}, {4, 6})
                self.assertEqual({case.link for case in mine}, links)
                self.assertEqual({case.program.wrong for case in mine}, wrong)
                self.assertTrue(any(case.loss for case in mine))

    def test_only_a_client_posts_the_wrong_request(self):
        case = next(case for case in cases.placement() if case.program.wrong == "range")
        commands = []
        guest = types.SimpleNamespace(
            addresses=types.SimpleNamespace(control="198.51.100.2"), gid_indices={4: "1", 6: "2"},
            check=lambda *_: "0", begin=lambda text, _: commands.append(text))
        peer = GuestPeer("rxe", guest)
        peer.begin(case)
        peer.begin(case, "198.51.100.254")
        common = f"exec rxe_placement -d rxe0 -g 1 -p {case.port} -s 1025 -m 1024 -n 200"
        self.assertEqual(commands, [common, f"{common} -w range 198.51.100.254"])
        link = types.SimpleNamespace(needs_peer_to_boot=False, port_words=lambda: ["--udp", "x"])
        uroce = UrocePeer("uroce-perf", link, pathlib.Path("/tmp"))
        server, client = (" ".join(uroce.command(case, host)) for host in (None, "198.51.100.2"))
        self.assertIn("uroce-perf placement --udp x --ip 192.0.2.1/24 -g 0 ", server)
        self.assertTrue(server.endswith(" -u 16 --json"), server)
        self.assertTrue(client.endswith(" -u 16 --json -w range 198.51.100.2"), client)
        atomic = next(case for case in cases.placement() if case.program.wrong == "address")
        self.assertEqual(atomic.program.client_options(), ["-U", "-w", "address"])

    def test_nothing_is_lost_that_the_kernel_cannot_repair(self):
        lossy = [case for case in cases.placement() if case.loss]
        for case in lossy:
            seed = ["--seed", case.seed]
            server, client = (case.program.loss_options(case, serving) for serving in (True, False))
            self.assertEqual(server, ["--loss-tx", 0.02, *seed])
            also = [] if case.program.flushed else ["--loss-rx", 0.02]
            self.assertEqual(client, [*also, "--loss-tx", 0.02, *seed])
        self.assertEqual({case.program.flushed for case in lossy}, {True, False})

    def test_the_guests_program_must_report_all_rounds(self):
        case = cases.placement()[0]
        self.assertEqual(case.program.fault(case, "200 rounds checked", True), "")
        for text in ("", "20 rounds checked", "1200 rounds checked"):
            self.assertEqual(case.program.fault(case, text, True),
                             "did not report 200 rounds checked")


if __name__ == "__main__":
    unittest.main()
