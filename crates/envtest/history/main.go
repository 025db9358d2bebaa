// history writes to and reads from an etcd cluster for as long as its standard input is open, records when every operation began
// and ended, and then checks with porcupine that one order of all operations explains every answer (linearizability).
//
//	history CA CERTIFICATE KEY ADDRESS...
//
// Every client uses one member at a time, so that the members' answers are compared with each other. A write without an answer may
// have happened or not. The result is one line of JSON; the exit code is 0 only when the history is linearizable.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	clients = 6
	keys    = 3
	// The pause between two operations of a client: some hundred operations a second in all.
	pause = 15 * time.Millisecond
	// The time limit of an operation.
	limit = 3 * time.Second
	// The time limit of the check.
	checkLimit = 5 * time.Minute
)

type request struct {
	key   string
	write bool
	value string
}

type report struct {
	Writes  int    `json:"writes"`
	Reads   int    `json:"reads"`
	Unknown int    `json:"unknown"`
	Longest string `json:"longestGap"`
	Result  string `json:"result"`
}

// The value of one key: what the last write wrote.
func register() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[string][]porcupine.Operation{}
			for _, operation := range history {
				key := operation.Input.(request).key
				parts[key] = append(parts[key], operation)
			}
			var all [][]porcupine.Operation
			for _, part := range parts {
				all = append(all, part)
			}
			return all
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			if asked := input.(request); asked.write {
				return true, asked.value
			}
			return output.(string) == state.(string), state
		},
	}
}

// The operations of all clients, and their names: a client with an unfinished write continues under another name.
type recorder struct {
	begin time.Time
	names atomic.Int64
	lock  sync.Mutex
	all   []porcupine.Operation
}

func (r *recorder) now() int64 { return time.Since(r.begin).Nanoseconds() }

func (r *recorder) record(client int64, asked request, call int64, answer string, end int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.all = append(r.all, porcupine.Operation{
		ClientId: int(client), Input: asked, Call: call, Output: answer, Return: end,
	})
}

// One client: it reads and writes by turns, and goes to the next member after a failure. It writes there only after a read, so that a
// member that is down causes no unknown writes.
func (r *recorder) run(open context.Context, number int, login *tls.Config, addresses []string) error {
	name := r.names.Add(1)
	for turn := number; open.Err() == nil; turn++ {
		member, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{"https://" + addresses[turn%len(addresses)] + ":2379"},
			TLS:         login,
			DialTimeout: limit,
			// Members fail all the time: that is the test.
			Logger: zap.NewNop(),
		})
		if err != nil {
			return err
		}
		for count := 0; open.Err() == nil; count++ {
			asked := request{key: fmt.Sprintf("/kubeon-history/%d", (number+count/2)%keys), write: count%2 == 1}
			if asked.write {
				asked.value = fmt.Sprintf("%d.%d.%d", name, turn, count)
			}
			call := r.now()
			answer, err := do(member, asked)
			switch {
			case err == nil:
				r.record(name, asked, call, answer, r.now())
			case asked.write:
				r.record(name, asked, call, "", math.MaxInt64)
				name = r.names.Add(1)
			}
			time.Sleep(pause)
			if err != nil {
				break
			}
		}
		member.Close()
	}
	return nil
}

// The operation ends in its own time: an end of the program makes no unknown write.
func do(member *clientv3.Client, asked request) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if asked.write {
		_, err := member.Put(ctx, asked.key, asked.value)
		return "", err
	}
	found, err := member.Get(ctx, asked.key)
	if err != nil || len(found.Kvs) == 0 {
		return "", err
	}
	return string(found.Kvs[0].Value), nil
}

func login(ca, certificate, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	return &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// The longest time without the end of an operation.
func longestGap(history []porcupine.Operation, end int64) time.Duration {
	ends := make([]int64, 0, len(history)+1)
	for _, operation := range history {
		if operation.Return != math.MaxInt64 {
			ends = append(ends, operation.Return)
		}
	}
	ends = append(ends, end)
	var last, longest int64
	for _, at := range ends {
		longest, last = max(longest, at-last), at
	}
	return time.Duration(longest).Round(time.Millisecond)
}

func run(arguments []string) (report, error) {
	if len(arguments) < 4 {
		return report{}, fmt.Errorf("usage: history CA CERTIFICATE KEY ADDRESS...")
	}
	config, err := login(arguments[0], arguments[1], arguments[2])
	if err != nil {
		return report{}, err
	}
	open, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	recorder := recorder{begin: time.Now()}
	var group sync.WaitGroup
	failed := make([]error, clients)
	for number := range clients {
		group.Go(func() { failed[number] = recorder.run(open, number, config, arguments[3:]) })
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return report{}, err
		}
	}
	history, found := recorder.all, report{}
	for _, operation := range history {
		switch asked := operation.Input.(request); {
		case operation.Return == math.MaxInt64:
			found.Unknown++
		case asked.write:
			found.Writes++
		default:
			found.Reads++
		}
	}
	found.Longest = longestGap(history, recorder.now()).String()
	found.Result = string(porcupine.CheckOperationsTimeout(register(), history, checkLimit))
	return found, nil
}

func main() {
	found, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(2)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
	if found.Result != string(porcupine.Ok) {
		os.Exit(1)
	}
}
