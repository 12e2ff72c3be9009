package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"flint.dev/flint/test/program"
)

// errEnded is wrapped by the error about a process that ended by itself.
var errEnded = errors.New("ended early")

// process is a child of ours.
type process struct {
	command *exec.Cmd
	logPath string
	ended   chan struct{} // closed when it has ended and was waited for
}

// run starts a program with its output in a file.
func run(line []string, logPath string, args ...string) (*process, error) {
	output, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }() // the child has its own
	command := exec.Command(line[0], append(line[1:len(line):len(line)], args...)...)
	command.Stdout, command.Stderr = output, output
	program.DieWithParent(command)
	p := &process{command: command, logPath: logPath, ended: make(chan struct{})}

	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends, so that thread is kept for as long
		// as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		_ = command.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process and waits until it has.
func (p *process) kill() {
	_ = p.command.Process.Kill() // fails only when it has ended
	<-p.ended
}

// endedEarly is the error of a process that has ended though nobody asked it to.
func (p *process) endedEarly(name string) error {
	return fmt.Errorf("%s %w (%s), its last words:\n%s", name, errEnded, p.command.ProcessState, p.tail())
}

// tail is the end of the process's output.
func (p *process) tail() string {
	const lines, most = 15, 4000
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	text = bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
	return string(text[max(0, len(text)-most):])
}
