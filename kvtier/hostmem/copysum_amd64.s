#include "textflag.h"

#define SUM(off) \
	CRC32Q off(SI)(AX*1), R8  \
	CRC32Q off(BX)(AX*1), R9  \
	CRC32Q off(R14)(AX*1), R10

// func copyLanes(dst, src *byte, lane uintptr, crcs *[3]uint32)
//
// SI, BX, R14 and DI, R15, R11 are the three lanes of src and dst, R8 to R10 their
// sums, AX the offset of the line of 64 bytes that is copied in each.
TEXT ·copyLanes(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ lane+16(FP), CX
	MOVQ crcs+24(FP), DX
	MOVL 0(DX), R8
	MOVL 4(DX), R9
	MOVL 8(DX), R10
	LEAQ (SI)(CX*1), BX
	LEAQ (SI)(CX*2), R14
	LEAQ (DI)(CX*1), R15
	LEAQ (DI)(CX*2), R11
	XORQ AX, AX

line:
	PREFETCHT0 512(SI)(AX*1)
	PREFETCHT0 512(BX)(AX*1)
	PREFETCHT0 512(R14)(AX*1)
	VMOVDQU  0(SI)(AX*1), Y0
	VMOVDQU  32(SI)(AX*1), Y1
	VMOVDQU  0(BX)(AX*1), Y2
	VMOVDQU  32(BX)(AX*1), Y3
	VMOVDQU  0(R14)(AX*1), Y4
	VMOVDQU  32(R14)(AX*1), Y5
	VMOVNTDQ Y0, 0(DI)(AX*1)
	VMOVNTDQ Y1, 32(DI)(AX*1)
	VMOVNTDQ Y2, 0(R15)(AX*1)
	VMOVNTDQ Y3, 32(R15)(AX*1)
	VMOVNTDQ Y4, 0(R11)(AX*1)
	VMOVNTDQ Y5, 32(R11)(AX*1)
	SUM(0)
	SUM(8)
	SUM(16)
	SUM(24)
	SUM(32)
	SUM(40)
	SUM(48)
	SUM(56)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   line

	SFENCE
	VZEROUPPER
	MOVL R8, 0(DX)
	MOVL R9, 4(DX)
	MOVL R10, 8(DX)
	RET
