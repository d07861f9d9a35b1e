// Command pause holds namespaces open: it is the sandbox container of every pod and the first
// process of every node. It does nothing but reap the orphans it inherits as PID 1.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
		if received := <-signals; received != syscall.SIGCHLD {
			os.Exit(0)
		}
	}
}
