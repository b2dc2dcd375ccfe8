#include "textflag.h"

// Rows of ·table, 32 bytes each; see kernels_amd64.go.
#define LOW    0(AX)
#define HIGH   32(AX)
#define LOG2E  64(AX)
#define MAGIC  96(AX)
#define LN2H   128(AX)
#define LN2L   160(AX)
#define C0     192(AX)
#define C1     224(AX)
#define C2     256(AX)
#define C3     288(AX)
#define C4     320(AX)
#define C5     352(AX)
#define ONE    384(AX)
#define BIAS   416(AX)
#define ABS    448(AX)
#define SIGN   480(AX)
#define TINY   512(AX)
#define N127   544(AX)
#define MBITS  576(AX)

// EXP replaces Y0 by exp(Y0) as the scalar exp does; it uses Y1 to Y5.
#define EXP \
	VCMPPS $0x15, LOW, Y0, Y5; \
	VMINPS HIGH, Y0, Y0;       \
	VMULPS LOG2E, Y0, Y2;      \
	VADDPS MAGIC, Y2, Y2;      \
	VSUBPS MAGIC, Y2, Y3;      \
	VMULPS LN2H, Y3, Y4;       \
	VSUBPS Y4, Y0, Y0;         \
	VMULPS LN2L, Y3, Y4;       \
	VSUBPS Y4, Y0, Y0;         \
	VMOVUPS C0, Y1;            \
	VMULPS Y0, Y1, Y1;         \
	VADDPS C1, Y1, Y1;         \
	VMULPS Y0, Y1, Y1;         \
	VADDPS C2, Y1, Y1;         \
	VMULPS Y0, Y1, Y1;         \
	VADDPS C3, Y1, Y1;         \
	VMULPS Y0, Y1, Y1;         \
	VADDPS C4, Y1, Y1;         \
	VMULPS Y0, Y1, Y1;         \
	VADDPS C5, Y1, Y1;         \
	VMULPS Y0, Y0, Y3;         \
	VMULPS Y3, Y1, Y1;         \
	VADDPS Y0, Y1, Y1;         \
	VADDPS ONE, Y1, Y1;        \
	VPSUBD BIAS, Y2, Y2;       \
	VPSLLD $23, Y2, Y2;        \
	VMULPS Y2, Y1, Y1;         \
	VANDPS Y5, Y1, Y0

// func softmaxAVX2(s *float32, groups int) float32
// groups of 8 entries, at least one.
TEXT ·softmaxAVX2(SB), NOSPLIT, $0-20
	MOVQ s+0(FP), DI
	MOVQ groups+8(FP), CX
	LEAQ ·table(SB), AX
	MOVQ DI, SI
	MOVQ CX, DX
	VMOVUPS (SI), Y6
top:
	VMAXPS (SI), Y6, Y6
	ADDQ $32, SI
	DECQ DX
	JNZ  top
	VEXTRACTF128 $1, Y6, X0
	VMAXPS X0, X6, X6
	VPERMILPS $0x4E, X6, X0
	VMAXPS X0, X6, X6
	VPERMILPS $0xB1, X6, X0
	VMAXPS X0, X6, X6
	VBROADCASTSS X6, Y6
	VXORPS Y7, Y7, Y7
each:
	VMOVUPS (DI), Y0
	VSUBPS Y6, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	VADDPS Y0, Y7, Y7
	ADDQ $32, DI
	DECQ CX
	JNZ  each
	VEXTRACTF128 $1, Y7, X0
	VADDPS X0, X7, X7           // s0+s4, s1+s5, s2+s6, s3+s7
	VPERMILPS $0x4E, X7, X0
	VADDPS X0, X7, X7           // even sums, odd sums
	VPERMILPS $0xB1, X7, X0
	VADDSS X0, X7, X7
	VMOVSS X7, ret+16(FP)
	VZEROUPPER
	RET

// func swigluAVX2(gate, up *float32, groups int)
TEXT ·swigluAVX2(SB), NOSPLIT, $0-24
	MOVQ gate+0(FP), DI
	MOVQ up+8(FP), SI
	MOVQ groups+16(FP), CX
	LEAQ ·table(SB), AX
gated:
	VMOVUPS (DI), Y7
	VXORPS SIGN, Y7, Y0
	EXP
	VADDPS ONE, Y0, Y0
	VDIVPS Y0, Y7, Y0
	VMULPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	DECQ CX
	JNZ  gated
	VZEROUPPER
	RET

// func quantiseAVX2(q *int16, d, x *float32, blocks int)
TEXT ·quantiseAVX2(SB), NOSPLIT, $0-32
	MOVQ q+0(FP), DI
	MOVQ d+8(FP), SI
	MOVQ x+16(FP), BX
	MOVQ blocks+24(FP), CX
	LEAQ ·table(SB), AX
	VMOVUPS ABS, Y10
	VMOVUPS MAGIC, Y11
	VMOVUPS MBITS, Y12
	VMOVUPS TINY, Y13
	VMOVUPS N127, Y14
quant:
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVUPS 64(BX), Y2
	VMOVUPS 96(BX), Y3
	VANDPS Y10, Y0, Y4
	VANDPS Y10, Y1, Y5
	VMAXPS Y5, Y4, Y4
	VANDPS Y10, Y2, Y5
	VANDPS Y10, Y3, Y6
	VMAXPS Y6, Y5, Y5
	VMAXPS Y5, Y4, Y4
	VEXTRACTF128 $1, Y4, X5
	VMAXPS X5, X4, X4
	VPERMILPS $0x4E, X4, X5
	VMAXPS X5, X4, X4
	VPERMILPS $0xB1, X4, X5
	VMAXPS X5, X4, X4           // the peak in every lane
	VDIVPS X14, X4, X5          // peak / 127
	VCVTPS2PH $0, X5, X5
	VCVTPH2PS X5, X5
	VMOVSS X5, (SI)
	VDIVPS X4, X14, X6          // 127 / peak
	VCMPPS $0x1D, X13, X4, X5   // peak >= tiny
	VANDPS X5, X6, X6
	VBROADCASTSS X6, Y6
	VMULPS Y6, Y0, Y0
	VMULPS Y6, Y1, Y1
	VMULPS Y6, Y2, Y2
	VMULPS Y6, Y3, Y3
	VADDPS Y11, Y0, Y0
	VADDPS Y11, Y1, Y1
	VADDPS Y11, Y2, Y2
	VADDPS Y11, Y3, Y3
	VPSUBD Y12, Y0, Y0
	VPSUBD Y12, Y1, Y1
	VPSUBD Y12, Y2, Y2
	VPSUBD Y12, Y3, Y3
	VPACKSSDW Y1, Y0, Y0        // interleaved by half registers
	VPACKSSDW Y3, Y2, Y2
	VPERMQ $0xD8, Y0, Y0
	VPERMQ $0xD8, Y2, Y2
	VMOVDQU Y0, (DI)
	VMOVDQU Y2, 32(DI)
	ADDQ $128, BX
	ADDQ $64, DI
	ADDQ $4, SI
	DECQ CX
	JNZ  quant
	VZEROUPPER
	RET

#define STEP(m, acc) \
	VMULPS m, Y8, Y9;   \
	VADDPS Y9, acc, acc

#define STEP8(p) \
	STEP((p), Y0)      \
	STEP(32(p), Y1)    \
	STEP(64(p), Y2)    \
	STEP(96(p), Y3)    \
	STEP(128(p), Y4)   \
	STEP(160(p), Y5)   \
	STEP(192(p), Y6)   \
	STEP(224(p), Y7)

// func scoresAVX2(s, query, keys *float32, n int)
// Products of one query of n elements with the 64 keys of a block.
TEXT ·scoresAVX2(SB), NOSPLIT, $0-32
	MOVQ s+0(FP), DI
	MOVQ query+8(FP), SI
	MOVQ keys+16(FP), BX
	MOVQ n+24(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
element:
	VBROADCASTSS (SI), Y8
	STEP8(BX)
	ADDQ $256, BX
	ADDQ $4, SI
	DECQ CX
	JNZ  element
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VZEROUPPER
	RET

// func weigh64(out, p, values *float32, n, stride int)
// Adds p[t] times 64 elements of token t to out; tokens are stride elements apart.
TEXT ·weigh64(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ values+16(FP), BX
	MOVQ n+24(FP), CX
	MOVQ stride+32(FP), DX
	SHLQ $2, DX
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
token64:
	VBROADCASTSS (SI), Y8
	STEP8(BX)
	ADDQ DX, BX
	ADDQ $4, SI
	DECQ CX
	JNZ  token64
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VZEROUPPER
	RET

// func weigh32(out, p, values *float32, n, stride int)
// As weigh64, for 32 elements.
TEXT ·weigh32(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ values+16(FP), BX
	MOVQ n+24(FP), CX
	MOVQ stride+32(FP), DX
	SHLQ $2, DX
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
token32:
	VBROADCASTSS (SI), Y8
	STEP((BX), Y0)
	STEP(32(BX), Y1)
	STEP(64(BX), Y2)
	STEP(96(BX), Y3)
	ADDQ DX, BX
	ADDQ $4, SI
	DECQ CX
	JNZ  token32
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
	RET

// func weigh8(out, p, values *float32, n, stride int)
// As weigh64, for 8 elements.
TEXT ·weigh8(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ values+16(FP), BX
	MOVQ n+24(FP), CX
	MOVQ stride+32(FP), DX
	SHLQ $2, DX
	VMOVUPS (DI), Y0
token8:
	VBROADCASTSS (SI), Y8
	STEP((BX), Y0)
	ADDQ DX, BX
	ADDQ $4, SI
	DECQ CX
	JNZ  token8
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET
