package connect

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weir-dev/weir/e2e/reword"
)

// proxy passes requests on to one server as careless middle boxes do: it strips the
// headers and writes the JSON of bodies anew, with other white space and the keys of
// objects in another order. Answers pass unchanged, as they come.
type proxy struct {
	URL string
	srv *http.Server
}

// maxBody bounds what the proxy reads of a request.
const maxBody = 16 << 20

func startProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{URL: "http://" + l.Addr().String()}
	p.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := pass(w, r, to); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})}
	go func() { _ = p.srv.Serve(l) }() // ends with Close
	return p, nil
}

// Close ends the proxy.
func (p *proxy) Close() error { return p.srv.Close() }

func pass(w http.ResponseWriter, r *http.Request, to string) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return err
	}
	if body, err = reword.JSON(body); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read as far as the client wants it
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil //nolint:nilerr // the client is gone
			}
			_ = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return nil //nolint:nilerr // the end, or an answer that broke off: the client sees it
		}
	}
}
