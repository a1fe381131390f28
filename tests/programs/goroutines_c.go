// Goroutines that work in C, on threads that the C library makes.
package main

/*
#include <unistd.h>
static double work(int turns) { volatile double sum = 0; for (int turn = 0; turn < turns; turn++) sum += turn; usleep(20000); return sum; }
*/
import "C"

import (
	"fmt"
	"sync"
)

func main() {
	var group sync.WaitGroup
	for number := 0; number < 4; number++ {
		group.Add(1)
		go func() {
			defer group.Done()
			C.work(100000000)
		}()
	}
	group.Wait()
	fmt.Println("goroutines: done")
}
