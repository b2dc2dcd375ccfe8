package chat

import (
	"encoding/json"
	"testing"
)

// TestDeveloper: a template that does not know the role of OpenAI's newer models
// sees a system message; one that does sees the role.
func TestDeveloper(t *testing.T) {
	in := Input{Messages: []json.RawMessage{
		json.RawMessage(`{"role":"developer","content":"Be brief."}`), json.RawMessage(`{"role":"user","content":"Hi"}`),
	}}
	for source, want := range map[string]string{
		"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}":                                                     "system: Be brief.\nuser: Hi\n",
		"{% for m in messages %}{% if m.role == 'developer' %}D {% else %}{{ m.role }} {% endif %}{{ m.content }}\n{% endfor %}": "D Be brief.\nuser Hi\n",
	} {
		tmpl, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(in); err != nil || got != want {
			t.Errorf("%s\ngives %q, %v; want %q", source, got, err, want)
		}
	}
}
