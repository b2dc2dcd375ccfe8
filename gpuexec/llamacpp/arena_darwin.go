package llamacpp

// adviseHuge does nothing: macOS has no such advice for anonymous memory.
func adviseHuge([]byte) {}
