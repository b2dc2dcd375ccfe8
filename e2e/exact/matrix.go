package exact

// Matrix is all that is compared: both engines, each with every sampling, prompt and
// condition. On the Go engine long prompts run on a tiny model, because the default
// one is slow there. short is the part that runs with every change.
func Matrix(short bool) []Options {
	all := Options{Samplings: []string{Greedy, Seeded}, Conditions: []Condition{Cold, Evicted, Partial, Beside}}
	llama, goSmall, goTiny := all, all, all
	llama.Engine, llama.Preset, llama.Prompts = "llama", "small", []int{1, 63, 64, 65, 1000, 4000}
	goSmall.Engine, goSmall.Preset, goSmall.Prompts = "go", "small", []int{1, 63, 64, 65}
	goTiny.Engine, goTiny.Preset, goTiny.Prompts = "go", "tiny", []int{1000, 4000}
	if short {
		llama.Prompts = []int{1, 65, 300}
		goTiny.Prompts = []int{64, 65, 300}
		goTiny.Samplings = []string{Seeded}
		return []Options{llama, goTiny}
	}
	return []Options{llama, goSmall, goTiny}
}
