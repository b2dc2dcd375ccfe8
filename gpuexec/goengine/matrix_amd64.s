#include "textflag.h"

// The arithmetic, and the packed layouts, are those of kernels_scalar.go and
// matrix.go. Registers of the Q8_0 kernels:
//
//	BX      packed weights of one group: 272 bytes per block
//	R8-R11  quantised tokens, int16
//	R12     scales of the first token; R13 bytes to the next token's
//	CX      blocks left

// WEIGHTS widens the 8 rows of 4 columns at byte off to Y8 (rows 0 1 4 5) and Y9
// (rows 2 3 6 7).
#define WEIGHTS(off) \
	VPMOVSXBW off(BX), Y8;      \
	VPMOVSXBW (off+16)(BX), Y9

// SET and ADD multiply them with 4 columns of a token; each 32-bit lane gets the
// sum of two products.
#define SET(x, off, a, b) \
	VPBROADCASTQ off(x), Y10; \
	VPMADDWD Y8, Y10, a;      \
	VPMADDWD Y9, Y10, b

#define ADD(x, off, a, b) \
	VPBROADCASTQ off(x), Y10; \
	VPMADDWD Y8, Y10, Y11;    \
	VPADDD Y11, a, a;         \
	VPMADDWD Y9, Y10, Y10;    \
	VPADDD Y10, b, b

#define ADD4(woff, xoff) \
	WEIGHTS(woff)            \
	ADD(R8, xoff, Y0, Y1)    \
	ADD(R9, xoff, Y2, Y3)    \
	ADD(R10, xoff, Y4, Y5)   \
	ADD(R11, xoff, Y6, Y7)

// SCALE joins the pairs, which puts the rows in order, and adds the block to the
// sum: acc += float(a) * (row scale * token scale). Y8 holds the row scales.
#define SCALE(d, a, b, acc) \
	VPHADDD b, a, a;        \
	VCVTDQ2PS a, a;         \
	VBROADCASTSS d, Y10;    \
	VMULPS Y10, Y8, Y10;    \
	VMULPS Y10, a, a;       \
	VADDPS a, acc, acc

// func q8x4(y *float32, stride int, w *byte, q *int16, d *float32, blocks int)
// One group of 8 rows times 4 tokens.
TEXT ·q8x4(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ stride+8(FP), SI
	MOVQ w+16(FP), BX
	MOVQ q+24(FP), R8
	MOVQ d+32(FP), R12
	MOVQ blocks+40(FP), CX
	SHLQ $2, SI
	MOVQ CX, AX
	SHLQ $6, AX              // bytes of one quantised token
	LEAQ (R8)(AX*1), R9
	LEAQ (R9)(AX*1), R10
	LEAQ (R10)(AX*1), R11
	MOVQ CX, R13
	SHLQ $2, R13             // bytes of one token's scales
	LEAQ (R13)(R13*2), DX
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15
loop4:
	WEIGHTS(16)
	SET(R8, 0, Y0, Y1)
	SET(R9, 0, Y2, Y3)
	SET(R10, 0, Y4, Y5)
	SET(R11, 0, Y6, Y7)
	ADD4(48, 8)
	ADD4(80, 16)
	ADD4(112, 24)
	ADD4(144, 32)
	ADD4(176, 40)
	ADD4(208, 48)
	ADD4(240, 56)
	VCVTPH2PS (BX), Y8
	SCALE((R12), Y0, Y1, Y12)
	SCALE((R12)(R13*1), Y2, Y3, Y13)
	SCALE((R12)(R13*2), Y4, Y5, Y14)
	SCALE((R12)(DX*1), Y6, Y7, Y15)
	ADDQ $272, BX
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $64, R11
	ADDQ $4, R12
	DECQ CX
	JNZ  loop4
	VMOVUPS Y12, (DI)
	ADDQ SI, DI
	VMOVUPS Y13, (DI)
	ADDQ SI, DI
	VMOVUPS Y14, (DI)
	ADDQ SI, DI
	VMOVUPS Y15, (DI)
	VZEROUPPER
	RET

#define ADD1(woff, xoff) \
	WEIGHTS(woff)         \
	ADD(R8, xoff, Y0, Y1)

// func q8x1(y *float32, w *byte, q *int16, d *float32, blocks int)
// One group of 8 rows times one token.
TEXT ·q8x1(SB), NOSPLIT, $0-40
	MOVQ y+0(FP), DI
	MOVQ w+8(FP), BX
	MOVQ q+16(FP), R8
	MOVQ d+24(FP), R12
	MOVQ blocks+32(FP), CX
	VXORPS Y12, Y12, Y12
loop1:
	WEIGHTS(16)
	SET(R8, 0, Y0, Y1)
	ADD1(48, 8)
	ADD1(80, 16)
	ADD1(112, 24)
	ADD1(144, 32)
	ADD1(176, 40)
	ADD1(208, 48)
	ADD1(240, 56)
	VCVTPH2PS (BX), Y8
	SCALE((R12), Y0, Y1, Y12)
	ADDQ $272, BX
	ADDQ $64, R8
	ADDQ $4, R12
	DECQ CX
	JNZ  loop1
	VMOVUPS Y12, (DI)
	VZEROUPPER
	RET

#define COLUMN(w, acc) \
	VMULPS w, Y8, Y9;    \
	VADDPS Y9, acc, acc

// func f32x4(y, w, x *float32, cols int)
// Four groups of 8 rows, one after the other in w, times one token.
TEXT ·f32x4(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), DI
	MOVQ w+8(FP), BX
	MOVQ x+16(FP), R8
	MOVQ cols+24(FP), CX
	MOVQ CX, SI
	SHLQ $5, SI              // bytes of one group
	LEAQ (SI)(SI*2), DX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
column4:
	VBROADCASTSS (R8), Y8
	COLUMN((BX), Y0)
	COLUMN((BX)(SI*1), Y1)
	COLUMN((BX)(SI*2), Y2)
	COLUMN((BX)(DX*1), Y3)
	ADDQ $32, BX
	ADDQ $4, R8
	DECQ CX
	JNZ  column4
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
	RET

// func f32x1(y, w, x *float32, cols int)
// One group of 8 rows times one token.
TEXT ·f32x1(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), DI
	MOVQ w+8(FP), BX
	MOVQ x+16(FP), R8
	MOVQ cols+24(FP), CX
	VXORPS Y0, Y0, Y0
column1:
	VBROADCASTSS (R8), Y8
	COLUMN((BX), Y0)
	ADDQ $32, BX
	ADDQ $4, R8
	DECQ CX
	JNZ  column1
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET
