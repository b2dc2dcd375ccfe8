package reword

import "testing"

func TestJSON(t *testing.T) {
	got, err := JSON([]byte(`{"b":1.50,"a":[{"arguments":"{\"y\":1,\"x\":\"\\ud55c\"}","z":null},{"arguments":"no {json"}]}`))
	want := "{\n \"a\": [\n  {\n   \"arguments\": \"{\\n\\t\\\"x\\\": \\\"한\\\",\\n\\t\\\"y\\\": 1\\n}\",\n   \"z\": null\n  },\n" +
		"  {\n   \"arguments\": \"no {json\"\n  }\n ],\n \"b\": 1.50\n}"
	if err != nil || string(got) != want {
		t.Errorf("%v: %s\nwant %s", err, got, want)
	}
	if _, err := JSON([]byte("{")); err == nil {
		t.Error("half a document was taken")
	}
}
