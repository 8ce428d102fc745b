"""The numbers that Python and the kernels have to agree on. Nothing here does anything, nor imports numba."""

from __future__ import annotations

import platform

# What a kernel answers.
OK = 0
FULL = 1  # no more room in the output: not an error
CORRUPT = 2
CRC_WRONG = 3
OLD_FORMAT = 4  # magic 0 or 1

# Columns of a row: one batch that has something to copy.
AT_POS = 0  # in the fetched buffer
AT_SIZE = 1  # with its header
AT_BASE = 2  # offsets of the source
AT_LAST = 3
AT_COUNT = 4
AT_FLAGS = 5  # low byte of the attributes, and NEEDS_REWRITE
AT_TS = 6  # base timestamp
AT_MAX_TS = 7
COLUMNS = 8

NEEDS_REWRITE = 0x100  # holes, LogAppendTime or a delete horizon: cannot pass as it stands

# State of a scan.
S_ROWS = 0
S_NEXT = 1  # offset behind the last whole batch
S_ENDS = 2  # position behind the last whole batch
S_CONTROL = 3
S_ABORTED = 4
S_EMPTY = 5
S_BELOW = 6  # whole batches before the wanted offset
SCAN_STATE = 7

# State of a rewrite or merge.
T_OUT = 0  # position in the output
T_RECORDS = 1  # records in the output
T_BASE_TS = 2
T_MAX_TS = 3
T_RUNS = 4
T_EXPECTED = 5  # the source offset that would continue the last run
T_DROP = 6  # records at the front of the current row not to copy
T_ROW = 7
T_NEED = 8  # bytes of the record that did not fit
T_STUCK = 9  # and its source offset
MERGE_STATE = 10

# CRCs of batches up to this size are checked in the kernel (about 8 GB/s with the processor's instruction, 1-2 without,
# and no call), larger ones by the crc32c package (16-26 GB/s, and 2-3 µs to get there): about the same cost here.
CRC_IN_KERNEL = 16384 if platform.machine() in ("x86_64", "AMD64") else 4096

MOST_OFFSET = (1 << 63) - 1  # the offset behind a batch must be a number too
SMALLEST_RECORD = 6  # attributes, four varints of a byte, no headers; the length itself not counted
