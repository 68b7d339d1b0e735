import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/**
 * Faults that the virtual machine turns into exceptions, in several threads, while registered memory
 * goes away. Arguments: the library of the native methods, a file to write to, and "fatal" for a fault
 * that ends the process.
 */
public class Faults {
    static native void openDevice();

    static native void loseRegions();

    static native long countOfFaults();

    static native void faultInC();

    static volatile boolean isOver;
    static volatile Throwable failure;
    static volatile long sum;

    int value = 3;

    /** The virtual machine looks for null by the fault that it gives. */
    static int read(Faults object) {
        return object.value;
    }

    static long deeper(long depth) {
        return deeper(depth + 1) + depth;
    }

    static void dereferenceNull() {
        Faults some = new Faults();
        for (int at = 0; at < 100; at++) {
            boolean isNull = at % 2 == 0, isCaught = false;
            try {
                sum += read(isNull ? null : some);
            } catch (NullPointerException expected) {
                isCaught = true;
            }
            check(isCaught == isNull, "null pointers");
        }
    }

    static void overflowTheStack() {
        boolean isCaught = false;
        try {
            sum += deeper(0);
        } catch (StackOverflowError expected) {
            isCaught = true;
        }
        check(isCaught, "stack overflow");
    }

    /** The error may come later than the access, at the latest as the file is closed. */
    static void readPastTheEnd(String name) throws Exception {
        boolean isCaught = false;
        try (RandomAccessFile file = new RandomAccessFile(name, "rw")) {
            file.setLength(8192);
            MappedByteBuffer map = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8192);
            file.setLength(0);
            sum += map.get(4096);
        } catch (InternalError expected) {
            isCaught = true;
        }
        check(isCaught, "a file's end");
    }

    static void check(boolean isSo, String claim) {
        if (!isSo) {
            throw new IllegalStateException("not so: " + claim);
        }
    }

    interface Body {
        void run() throws Exception;
    }

    /** A thread that does the same again and again. */
    static Thread repeat(Body body) {
        Thread thread = new Thread(null, () -> {
            try {
                while (!isOver) {
                    body.run();
                }
            } catch (Throwable thrown) {
                failure = thrown;
            }
        }, "repeats", 512 << 10);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        openDevice();
        loseRegions();
        if (arguments.length > 2) {
            faultInC();
        }
        Thread[] threads = {
            repeat(Faults::dereferenceNull),
            repeat(Faults::dereferenceNull),
            repeat(Faults::overflowTheStack),
            repeat(() -> readPastTheEnd(arguments[1])),
            repeat(() -> {
                System.gc();
                Thread.sleep(20);
            }),
        };
        for (int round = 0; round < 30; round++) {
            loseRegions();
            Thread.sleep(10);
        }
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
        System.out.println(countOfFaults());
    }
}
