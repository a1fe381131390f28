// Go with C code in it: Go's runtime has handlers of its own for every signal.
package main

/*
#include <unistd.h>
static double work(int n) { volatile double x = 0; for (int i = 0; i < n; i++) x += i; return x; }
static int writes(int fd) { return (int)write(fd, "x", 1); }
*/
import "C"

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func main() {
	var group sync.WaitGroup
	results := make([]float64, 8)
	for i := range results {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			results[i] = float64(C.work(20000000))
			runtime.GC()
		}(i)
	}
	group.Wait()
	for i, result := range results {
		fmt.Printf("goroutine %d: %g\n", i, result)
	}
	reader, writer, _ := os.Pipe()
	fmt.Printf("write from C: %d\n", int(C.writes(C.int(writer.Fd()))))
	reader.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
	fmt.Printf("signal: %v\n", <-signals)
	defer func() { fmt.Printf("recovered: %v\n", recover() != nil); os.Exit(3) }()
	var nothing *int
	fmt.Println(*nothing)
}
