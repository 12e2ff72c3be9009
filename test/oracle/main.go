// Command oracle asks Spark itself: it runs every case of package parity through the real
// spark-submit of each Spark line, against an API server on loopback that records what it is sent, and writes what came of
// it, in normal form, as a golden. A refused case's golden has the exit code and the error.
//
// The newest release of each line comes from PyPI and is kept in the user's cache. One JVM a version runs the
// cases, through both of spark-submit's parsers; -check runs some of them once more as processes of bin/spark-submit and
// fails if anything differs. A golden whose case has not changed is kept, unless -force is given.
//
// It needs Java 17 or newer (java and javac) and pip.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/test/distribution"
	"flint.dev/flint/test/parity"
)

func main() {
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	out   string
	only  *regexp.Regexp
	force bool
	check int
}

func run(ctx context.Context) error {
	var o options
	versions := flag.String("versions", "", "Spark versions, separated by commas; by default the newest of each line")
	only := flag.String("run", "", "only the cases whose name matches this pattern")
	jobs := flag.Int("jobs", 2, "versions at a time")
	timeout := flag.Duration("timeout", 2*time.Hour, "limit for all of it")
	flag.StringVar(&o.out, "out", filepath.Join("test", "parity", "testdata"), "the folder of the goldens")
	flag.BoolVar(&o.force, "force", false, "run unchanged cases too")
	flag.IntVar(&o.check, "check", 10, "how many cases of each version to run with bin/spark-submit too")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	cases, err := parity.Cases()
	if err != nil {
		return err
	}
	chosen := strings.FieldsFunc(*versions, func(r rune) bool { return r == ',' })
	if len(chosen) == 0 {
		if chosen, err = distribution.Newest(ctx); err != nil {
			return err
		}
	}
	errs := make([]error, len(chosen))
	slots := make(chan struct{}, max(1, *jobs))
	var all sync.WaitGroup
	for i, v := range chosen {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := o.version(ctx, v, cases); err != nil {
				errs[i] = fmt.Errorf("spark %s: %w", v, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// version writes the goldens of one Spark version.
func (o *options) version(ctx context.Context, v string, cases []parity.Case) error {
	goldens := os.DirFS(o.out)
	var due []*parity.Case
	for i := range cases {
		c := &cases[i]
		if !o.only.MatchString(c.Name) {
			continue
		}
		g, err := parity.ReadGolden(goldens, v, c.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if o.force || g == nil || g.Case != c.Hash() {
			due = append(due, c)
		}
	}
	if err := o.removeStale(v, cases); err != nil {
		return err
	}
	if len(due) == 0 {
		log.Printf("spark %s: all %d goldens are up to date", v, len(cases))
		return nil
	}
	r, err := newRunner(ctx, v)
	if err != nil {
		return err
	}
	defer r.close()
	var failed []error
	start := time.Now()
	for i, c := range due {
		g, err := r.run(ctx, c)
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
		if err == nil {
			err = parity.WriteGolden(o.out, v, c.Name, g)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name, err))
		}
		if (i+1)%50 == 0 || i+1 == len(due) {
			log.Printf("spark %s: %d of %d cases, %d failed, %s", v, i+1, len(due), len(failed), time.Since(start).Round(time.Second))
		}
	}
	if err := errors.Join(append(failed, o.crossCheck(ctx, r, due))...); err != nil {
		return err
	}
	return o.removeOlder(v)
}

// removeOlder removes the goldens of other releases of a version's line.
func (o *options) removeOlder(v string) error {
	line := v[:strings.LastIndexByte(v, '.')+1]
	others, err := parity.Versions(os.DirFS(o.out))
	for _, other := range others {
		if other != v && strings.HasPrefix(other, line) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.out, other)))
		}
	}
	return err
}

// removeStale removes the goldens of cases that are no more.
func (o *options) removeStale(v string, cases []parity.Case) error {
	stale, err := parity.Stale(os.DirFS(o.out), v, cases)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range stale {
		err = errors.Join(err, os.Remove(filepath.Join(o.out, v, name+".json")))
	}
	return err
}

// crossCheck runs cases that are spread over the table as processes of bin/spark-submit, and compares.
func (o *options) crossCheck(ctx context.Context, r *runner, due []*parity.Case) error {
	due = slices.DeleteFunc(slices.Clone(due), func(c *parity.Case) bool { return len(c.Env) > 0 })
	count := min(o.check, len(due))
	var differ []error
	for i := range count {
		c := due[i*len(due)/count]
		process, err := r.runProcess(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			differ = append(differ, fmt.Errorf("%s as a process: %w", c.Name, err))
			continue
		}
		inside, err := parity.ReadGolden(os.DirFS(o.out), r.version, c.Name)
		if err != nil {
			return err
		}
		if process.Refused() != inside.Refused() || !sameError(inside.Error, process.Error) {
			differ = append(differ, fmt.Errorf("%s: exit %d, but %d as a process: %s\n%s", c.Name, inside.Exit, process.Exit, inside.Error, process.Error))
			continue
		}
		if diff := cmp.Diff(inside.Objects, process.Objects); diff != "" {
			differ = append(differ, fmt.Errorf("%s differs as a process (-inside +process):\n%s", c.Name, diff))
		}
	}
	log.Printf("spark %s: %d of %d cases are the same with bin/spark-submit", r.version, count-len(differ), count)
	return errors.Join(differ...)
}

// sameError tells whether a process complained of the same thing. Its error is all that it printed.
func sameError(inside, process string) bool {
	message, _, _ := strings.Cut(strings.TrimPrefix(inside, "launcher: "), " | ")
	if _, text, ok := strings.Cut(message, ": "); ok && !strings.HasPrefix(inside, "launcher: ") {
		message = text
	}
	return strings.Contains(process, message)
}
