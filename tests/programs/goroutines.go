// Goroutines that work, in Go alone.
package main

import (
	"fmt"
	"sync"
)

func work(turns int) float64 {
	sum := 0.0
	for turn := 0; turn < turns; turn++ {
		sum += float64(turn)
	}
	return sum
}

func main() {
	var group sync.WaitGroup
	for number := 0; number < 4; number++ {
		group.Add(1)
		go func() {
			defer group.Done()
			work(100000000)
		}()
	}
	group.Wait()
	fmt.Println("goroutines: done")
}
