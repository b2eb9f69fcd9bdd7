"""Writes float8.bin: what the 256 codes of OFP8's E4M3 and then those of E5M2 stand for, according to
PyTorch (pip install torch numpy), as f32, little-endian. Run from anywhere.
"""

import pathlib

import torch


def main():
    codes = torch.arange(256, dtype=torch.uint8)
    tables = [codes.view(t).to(torch.float32) for t in (torch.float8_e4m3fn, torch.float8_e5m2)]
    out = torch.cat(tables).numpy().astype("<f4").tobytes()
    pathlib.Path(__file__).with_name("float8.bin").write_bytes(out)


if __name__ == "__main__":
    main()
