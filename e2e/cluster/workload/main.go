// Command workload is what the pods of the tests run. It does what its arguments say, one after the other, and passes
// over those that it does not know, so that it may stand where Spark's driver would: behind all arguments of Spark.
//
//	print=TEXT       writes TEXT and a line end
//	show=PATH        writes a file's content
//	env=NAME         writes a variable, with its name
//	lines=N:LENGTH   writes N lines of LENGTH bytes
//	sleep=DURATION   waits, and ends with 143 when told to end
//	stay=DURATION    waits, and does not end when told to
//	memory=MIB       touches that much memory, and keeps it
//	write=PATH:MIB   writes that much to a file
//	serve=ADDRESS    answers HTTP with 200 from now on
//	exit=CODE        ends
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	var kept [][]byte
	for _, argument := range os.Args[1:] {
		verb, value, found := strings.Cut(argument, "=")
		do := verbs[verb]
		if verb == "memory" {
			do = func(value string) error {
				mib, err := strconv.Atoi(value)
				for range mib {
					page := make([]byte, 1<<20)
					for i := 0; i < len(page); i += 4096 {
						page[i] = 1
					}
					kept = append(kept, page)
				}
				return err
			}
		}
		if !found || do == nil {
			continue
		}
		if err := do(value); err != nil {
			fmt.Fprintln(os.Stderr, argument+":", err)
			os.Exit(1)
		}
	}
	if len(kept) > 0 && kept[0][0] == 0 {
		os.Exit(1) // so that the compiler may not forget it
	}
}

var verbs = map[string]func(value string) error{
	"print": func(value string) error { _, err := fmt.Println(value); return err },
	"show": func(value string) error {
		content, err := os.ReadFile(value)
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(content)
		return err
	},
	"env": func(name string) error { _, err := fmt.Println(name + "=" + os.Getenv(name)); return err },
	"lines": func(value string) error {
		n, length, err := two(value)
		if err != nil {
			return err
		}
		w := bufio.NewWriter(os.Stdout)
		for line := range n {
			fmt.Fprintf(w, "%06d%s\n", line, strings.Repeat("x", max(0, length-6)))
		}
		return w.Flush()
	},
	"sleep": func(value string) error {
		limit, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.Canceled) {
			os.Exit(128 + int(syscall.SIGTERM))
		}
		return nil
	},
	"stay": func(value string) error {
		limit, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		signal.Ignore(syscall.SIGTERM)
		<-time.After(limit)
		return nil
	},
	"write": func(value string) error {
		path, size, _ := strings.Cut(value, ":")
		mib, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		for range mib {
			if _, err := file.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return file.Close()
	},
	"serve": func(value string) error {
		server := &http.Server{Addr: value, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go func() {
			fmt.Fprintln(os.Stderr, server.ListenAndServe())
			os.Exit(1)
		}()
		return nil
	},
	"exit": func(value string) error {
		code, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		os.Exit(code)
		return nil
	},
}

func two(value string) (a, b int, err error) {
	first, second, _ := strings.Cut(value, ":")
	a, err = strconv.Atoi(first)
	if err != nil {
		return 0, 0, err
	}
	b, err = strconv.Atoi(second)
	return a, b, err
}
