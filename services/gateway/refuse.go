package gateway

import (
	"net/http"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// refuse answers what no dialect has read with an error in the shape of the API that
// the request is meant for: Anthropic's clients send a version with every request.
func refuse(w http.ResponseWriter, r *http.Request, e *apiError) {
	if r.URL.Path == "/v1/messages" || strings.HasPrefix(r.URL.Path, "/v1/messages/") || r.Header.Get("Anthropic-Version") != "" {
		body := anthropic{}.failure(nil, e) // which may change the status
		writeErrorBody(w, e, body)
		return
	}
	writeError(w, e)
}

// encoded refuses a compressed body, which would be read as broken JSON.
func encoded(r *http.Request) *apiError {
	kind := r.Header.Get("Content-Encoding")
	if kind == "" || strings.EqualFold(kind, "identity") {
		return nil
	}
	return &apiError{
		Status: http.StatusUnsupportedMediaType, Type: typeInvalid, Code: schemas.CodeInvalid,
		Message: "bodies with Content-Encoding " + quoted(kind) + " are not read here; send the body as it is",
	}
}

// maxServed bounds the models that an error names.
const maxServed = 8

// withModels says in an error about an unknown model which ones there are.
func (g *Gateway) withModels(e *apiError) *apiError {
	models := g.fleet.models()
	if e.Code != schemas.CodeModel || len(models) == 0 {
		return e
	}
	var names []string
	for _, m := range models[:min(len(models), maxServed)] {
		names = append(names, quoted(m.Name))
	}
	more := ""
	if len(models) > maxServed {
		more = ", …"
	}
	c := *e
	c.Message += "; served are " + strings.Join(names, ", ") + more
	return &c
}
