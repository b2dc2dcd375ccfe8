package sampling

// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014. It is a counter with a mixing function, so element i
// of a stream costs the same as element 0; that is why it is used here.
const goldenGamma = 0x9e3779b97f4a7c15

// mix64 is the output function of SplitMix64 (a bijection on 64 bits).
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uniform is the random number in [0, 1) of token index under seed. The seed is
// mixed before use: callers like seeds 0, 1, 2, and the streams of seed and
// seed+goldenGamma would otherwise be one stream shifted by a token.
func Uniform(seed uint64, index int) float64 {
	r := mix64(mix64(seed) + (uint64(index)+1)*goldenGamma)
	return float64(r>>11) * 0x1p-53
}
