/** The Java machine: compiled code without unwind tables, faults as control flow, many threads. */
public class Threads {
    static long work(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) sum += i % 7;
        return sum;
    }

    static int depth(int n) {
        return depth(n + 1) + 1;
    }

    public static void main(String[] arguments) throws Exception {
        Thread[] threads = new Thread[16];
        long[] sums = new long[threads.length];
        for (int i = 0; i < threads.length; i++) {
            int at = i;
            threads[i] = new Thread(() -> sums[at] = work(30_000_000));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        for (int i = 0; i < threads.length; i++) System.out.println("thread " + i + ": " + sums[i]);
        int caught = 0;
        for (int i = 0; i < 100_000; i++) {
            try {
                Object nothing = i >= 0 ? null : "";
                nothing.hashCode();
            } catch (NullPointerException exception) {
                caught++;
            }
        }
        System.out.println("null pointers: " + caught);
        try {
            depth(0);
        } catch (StackOverflowError error) {
            System.out.println("stack overflow: caught");
        }
        Process child = new ProcessBuilder("sh", "-c", "exit 5").start();
        System.out.println("child: " + child.waitFor());
        System.exit(4);
    }
}
