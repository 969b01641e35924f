"""blocks.py OUT [TYPE...]: random blocks of every quantized type and their values by gguf-py's reference dequantization.

Writes OUT/TYPE.blocks (raw blocks) and OUT/TYPE.f32 (values). Needs numpy and gguf. Run once; the result is committed.
"""
import sys

import gguf
import numpy as np

# Offsets of the f16 fields of a block: random bytes there would often be NaN or infinite, which loading refuses.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
          "NVFP4": []}
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF]  # zeros, subnormals, the largest


def main(out, only):
    for name, fields in SCALES.items():
        if only and name not in only:
            continue
        rng = np.random.default_rng(3)
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        b = rng.integers(0, 256, (24, size), dtype=np.uint8)
        b[0], b[1] = 0x00, 0xFF  # codes at both ends
        for i in range(len(b)):
            for at in fields:
                h = rng.integers(0, 0x10000)
                while h & 0x7C00 == 0x7C00:
                    h = rng.integers(0, 0x10000)
                if 2 <= i < 2 + len(SPECIAL):
                    h = SPECIAL[i - 2]
                if i < 2:
                    h = 0x2C00
                b[i, at:at + 2] = np.frombuffer(np.uint16(h).tobytes(), np.uint8)
            if name == "MXFP4":  # exponents within the limits of loading
                b[i, 0] = rng.integers(88, 192)
            if name == "IQ1_M":  # the f16 lies in the top nibbles of the last four words
                h = SPECIAL[i - 2] if 2 <= i < 2 + len(SPECIAL) else 0x2C00 + i
                for j in range(4):
                    b[i, 49 + 2 * j] = b[i, 49 + 2 * j] & 15 | (h >> 4 * j & 15) << 4
        with np.errstate(over="raise", invalid="raise"):
            values = gguf.dequantize(b, kind).astype(np.float32)
        b.tofile(f"{out}/{name}.blocks")
        values.tofile(f"{out}/{name}.f32")


main(sys.argv[1], sys.argv[2:])
