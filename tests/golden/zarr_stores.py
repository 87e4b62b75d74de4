#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/zarr: small stores of seqax's flat tokens, with the libraries zarr and
numcodecs.

    python tests/golden/zarr_stores.py        (zarr 2, numcodecs, numpy)

`seqax` is written like in seqax's flat_tokens.py; each of the others differs in one property. The
documents are a formula, which tests/inputs/flat_tokens_tool/zarr_test.cc also implements.
"""
import pathlib
import shutil

import numcodecs
import numpy as np
import zarr

ROOT = pathlib.Path(__file__).parent / "zarr"


def documents(count, seed):
    return [[(seed + number * 131 + at * at) % 5000 + 1 for at in range(number * 37 % 23)]
            for number in range(count)]


def write(group, texts, compressor, filters, tokens_dtype="<u4", fill_value=0):
    starts = np.cumsum([0] + [len(text) for text in texts])
    tokens = np.array([token for text in texts for token in text]) * 2
    tokens[starts[:-1][[len(text) > 0 for text in texts]]] += 1
    arrays = [("encoded_tokens", tokens.astype(tokens_dtype), 1024, None),
              ("seq_starts", starts.astype("<u8"), 64, filters)]
    for name, values, chunk, its_filters in arrays:
        array = group.create_dataset(name, shape=values.shape, chunks=(chunk,), dtype=values.dtype,
                                     compressor=compressor, filters=its_filters,
                                     fill_value=fill_value)
        array[:] = values
    group.attrs["max_token_id"] = int(max(max(text) for text in texts if text))


def store(name, splits=("train",), compressor=None, filters=None, count=200, **options):
    root = zarr.open_group(str(ROOT / name), mode="w")
    for seed, split in enumerate(splits):
        write(root.create_group(split), documents(count, seed), compressor, filters, **options)


def blosc(codec, shuffle):
    return numcodecs.Blosc(cname=codec, clevel=5, shuffle=shuffle)


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    numcodecs.blosc.set_nthreads(1)
    delta = [numcodecs.Delta(dtype="i8")]
    store("seqax", ("train", "validation"), blosc("lz4", numcodecs.Blosc.BITSHUFFLE), delta)
    store("blosc_zstd_shuffle", compressor=blosc("zstd", numcodecs.Blosc.SHUFFLE), filters=delta)
    store("blosc_lz4hc", compressor=blosc("lz4hc", numcodecs.Blosc.NOSHUFFLE), filters=delta)
    store("blosc_zlib", compressor=blosc("zlib", numcodecs.Blosc.BITSHUFFLE))
    store("blosc_blosclz", compressor=blosc("blosclz", numcodecs.Blosc.SHUFFLE))
    store("zlib", compressor=numcodecs.Zlib(5))
    store("gzip", compressor=numcodecs.GZip(5), filters=delta)
    store("zstd", compressor=numcodecs.Zstd(3))
    store("plain", tokens_dtype="<u8", fill_value=None)
    # A chunk that is all zeros need not be stored.
    root = zarr.open_group(str(ROOT / "missing"), mode="w", )
    group = root.create_group("train")
    tokens = group.create_dataset("encoded_tokens", shape=(3000,), chunks=(1024,), dtype="<u4",
                                  compressor=blosc("lz4", numcodecs.Blosc.BITSHUFFLE), fill_value=0)
    tokens[0] = 1
    tokens[2999] = 14
    starts = group.create_dataset("seq_starts", shape=(2,), chunks=(64,), dtype="<u8", fill_value=0)
    starts[:] = [0, 3000]
    group.attrs["max_token_id"] = 7
    assert not (ROOT / "missing/train/encoded_tokens/1").exists()


if __name__ == "__main__":
    main()
