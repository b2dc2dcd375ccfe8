package sampling

import "math"

// exp and log of their own. math.Exp and math.Log differ in the last bits
// between architectures (assembly on some of them, fused multiply-add on
// others), and one bit can move a draw to the next token. Here every product is
// rounded by an explicit conversion, which forbids fusing (Go specification,
// "Floating-point operators"), so the result is the same everywhere.

const (
	ln2Hi      = 0x1.62e42feep-1            // the upper 32 bits of ln 2: k*ln2Hi is exact for |k| < 2^20
	ln2Lo      = 0x1.a39ef35793c76p-33      // ln 2 - ln2Hi
	expTable   = 32                         // entries of the table of 2^(j/32)
	perEntry   = expTable / math.Ln2        // table steps per unit of x
	entryHi    = 0x1.62e42feep-1 / 32       // ln2Hi / 32, exact
	entryLo    = 0x1.a39ef35793c76p-33 / 32 // ln2Lo / 32, exact
	expMinimum = -700.0                     // below it the result is taken as 0
)

// pow2 holds 2^(j/32) for j = 0..31.
var pow2 = powers()

// powers fills the table by a Taylor series that is far longer than needed.
func powers() (t [expTable]float64) {
	for j := range t {
		r := float64(float64(j) * (math.Ln2 / expTable))
		sum := 0.0
		for n := 24; n >= 1; n-- { // Horner: 1 + r(1 + r/2(1 + r/3(…)))
			sum = float64((1 + sum) * (r / float64(n)))
		}
		t[j] = 1 + sum
	}
	return t
}

// exp is e^x for x <= 0 with a relative error below 1e-15; 0 below -700.
// Of NaN it makes 0.
func exp(x float64) float64 {
	if !(x >= expMinimum) {
		return 0
	}
	// x = n·ln2/32 + r, |r| <= ln2/64; n counts table steps, rounded to nearest.
	n := int64(float64(x*perEntry) - 0.5)
	f := float64(n)
	r := x - float64(f*entryHi) - float64(f*entryLo)
	// e^r - 1 by Taylor up to r^6: the next term is below 4e-18.
	q := 1.0/120 + float64(r*(1.0/720))
	q = 1.0/24 + float64(r*q)
	q = 1.0/6 + float64(r*q)
	q = 0.5 + float64(r*q)
	q = 1 + float64(r*q)
	q = float64(r * q)
	k := n >> 5 // floor(n / expTable), in [-1010, 0]: the scale below is a normal number
	t := pow2[n&(expTable-1)]
	return float64((t + float64(t*q)) * math.Float64frombits(uint64(k+1023)<<52))
}

// log is the natural logarithm of a normal number x > 0, relative error below 1e-15.
func log(x float64) float64 {
	m, k := math.Frexp(x) // exact
	if m < math.Sqrt2/2 {
		m, k = m*2, k-1
	}
	// ln m = 2·atanh(s), s = (m-1)/(m+1), |s| < 0.1716.
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for n := 23; n >= 3; n -= 2 {
		sum = float64((1/float64(n) + sum) * s2)
	}
	e := float64(k)
	return float64(e*ln2Hi) + (float64(e*ln2Lo) + float64(2*s*(1+sum)))
}
