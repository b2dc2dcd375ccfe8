package turns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/weir-dev/weir/schemas"
)

// FieldError says which field of a body is wrong. errors.Is(err, ErrInvalid) is true.
type FieldError struct {
	Param   string // OpenAI's name of the field; empty when the whole body is meant
	Message string
	Unknown bool // the field is none that weir knows
}

// Error is the message.
func (e *FieldError) Error() string { return e.Message }

// Is makes errors.Is(err, ErrInvalid) work.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// DecodeBody reads a request body of OpenAI's shape with an optional "weir"
// object. Unknown fields are refused by name. The error is ErrTooLarge or a
// *FieldError.
func DecodeBody(b []byte) (*schemas.Turn, error) {
	t := new(schemas.Turn)
	if err := DecodeRequest(b, t); err != nil {
		return nil, err
	}
	if err := CheckTurn(t); err != nil {
		return nil, err
	}
	return t, nil
}

// DecodeRequest reads a JSON object into a struct and refuses fields that it does
// not have, by name. The error is ErrTooLarge or a *FieldError.
func DecodeRequest(b []byte, into any) error {
	if len(b) > MaxRequest {
		return fmt.Errorf("%w: the body has %d bytes, at most %d are allowed", ErrTooLarge, len(b), MaxRequest)
	}
	if !utf8.Valid(b) {
		return &FieldError{Message: "the body is not valid UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return jsonError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &FieldError{Message: "there is data after the JSON object of the body"}
	}
	return nil
}

// CheckTurn refuses what no caller may say in a turn. The error is a *FieldError.
func CheckTurn(t *schemas.Turn) error {
	if v := t.Weir.V; v != 0 && v != schemas.Version {
		return &FieldError{Param: "weir.v", Message: fmt.Sprintf("weir.v is %d, this server speaks %d", v, schemas.Version)}
	}
	if err := t.Check(); err != nil {
		return checkError(err)
	}
	if t.BodyRef != nil || t.Weir.Digest != "" {
		return &FieldError{Param: "body_ref", Message: "body_ref and weir.digest are not for callers"}
	}
	return nil
}

// CheckEvent says what Client.Event would refuse an event for. The error is a
// *FieldError or wraps ErrInvalid.
func CheckEvent(e EventRequest) error {
	_, err := eventMessage(&e)
	return err
}

// jsonError puts encoding/json's errors into words for a caller.
func jsonError(err error) *FieldError {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	text := strings.TrimPrefix(err.Error(), "json: ")
	switch {
	case errors.Is(err, io.EOF):
		return &FieldError{Message: "the body is empty; it must be a JSON object"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &FieldError{Message: "the body is not valid JSON: it ends too early"}
	case errors.As(err, &syntax):
		return &FieldError{Message: fmt.Sprintf("the body is not valid JSON: %s, at byte %d", syntax.Error(), syntax.Offset)}
	case errors.As(err, &kind):
		param := fieldName(kind.Field)
		if param == "" {
			return &FieldError{Message: fmt.Sprintf("the body must be a JSON object, it is a JSON %s", kind.Value)}
		}
		return &FieldError{Param: param, Message: fmt.Sprintf("invalid type for %q: a JSON %s cannot be read as %s", param, kind.Value, typeName(kind.Type.String()))}
	case strings.HasPrefix(text, "unknown field "):
		name := strings.Trim(strings.TrimPrefix(text, "unknown field "), `"`)
		return &FieldError{Param: name, Unknown: true, Message: "Unrecognized request argument supplied: " + name}
	}
	return checkError(err)
}

// fieldName drops the names of embedded Go structs, which begin with a capital,
// from a path of encoding/json.
func fieldName(path string) string {
	for path != "" && path[0] >= 'A' && path[0] <= 'Z' {
		_, path, _ = strings.Cut(path, ".")
	}
	return path
}

// typeName names a Go type as JSON does.
func typeName(t string) string {
	switch {
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"):
		return "an integer"
	case strings.HasPrefix(t, "float"):
		return "a number"
	case t == "bool":
		return "a boolean"
	case t == "string":
		return "a string"
	case strings.HasPrefix(t, "[]"):
		return "an array"
	}
	return "an object"
}

// checkError names the field that a message of the contract begins with, such as
// "temperature is 3, allowed are 0 to 2".
func checkError(err error) *FieldError {
	text := err.Error()
	for _, e := range [...]error{schemas.ErrMessage, schemas.ErrID, schemas.ErrTooLarge} {
		text = strings.TrimPrefix(text, e.Error()+": ")
	}
	param, _, _ := strings.Cut(text, " ")
	param, _, _ = strings.Cut(param, "[")
	if strings.Trim(param, "abcdefghijklmnopqrstuvwxyz_.") != "" || param == "tokens" || param == "a" {
		param = ""
	}
	return &FieldError{Param: param, Message: text}
}
