// Faults that Go's runtime turns into panics, in several goroutines, while registered memory goes
// away. Arguments: a file to write to, and "fatal" for a fault that ends the process.
package main

/*
#cgo LDFLAGS: -libverbs
#include "faults.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var isOver atomic.Bool

// What a body panics with, nil if it does not.
func caught(body func()) (what any) {
	defer func() { what = recover() }()
	body()
	return nil
}

func check(isSo bool, claim string) {
	if !isSo {
		fmt.Fprintln(os.Stderr, "not so:", claim)
		os.Exit(1)
	}
}

func dereferenceNil() {
	var none *[2]int
	_, isError := caught(func() { none[1]++ }).(runtime.Error)
	check(isError, "nil pointers")
	some := &[2]int{}
	check(caught(func() { some[1]++ }) == nil && some[1] == 1, "other pointers")
}

func readPastTheEnd(name string) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0600)
	check(err == nil && file.Truncate(8192) == nil, "a file")
	both := syscall.PROT_READ | syscall.PROT_WRITE
	bytes, err := syscall.Mmap(int(file.Fd()), 0, 8192, both, syscall.MAP_SHARED)
	check(err == nil && file.Truncate(0) == nil, "a mapping")
	debug.SetPanicOnFault(true)
	check(caught(func() { bytes[4096]++ }) != nil, "a file's end")
	check(syscall.Munmap(bytes) == nil && file.Close() == nil, "the end of the mapping")
}

func main() {
	C.open_device()
	C.lose_regions()
	if len(os.Args) > 2 {
		C.fault_in_c()
	}
	var all sync.WaitGroup
	repeat := func(body func()) {
		all.Add(1)
		go func() {
			defer all.Done()
			for !isOver.Load() {
				body()
			}
		}()
	}
	repeat(dereferenceNil)
	repeat(dereferenceNil)
	repeat(func() { readPastTheEnd(os.Args[1]) })
	repeat(func() {
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	})
	for round := 0; round < 30; round++ {
		C.lose_regions()
		time.Sleep(10 * time.Millisecond)
	}
	isOver.Store(true)
	all.Wait()
	fmt.Println(C.count_of_faults())
}
