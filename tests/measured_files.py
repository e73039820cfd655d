"""Measured files as they are written, for tests, and what was read of them."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

# ruff: noqa: E501 - lines of real files stand as they are
from pathlib import Path
from typing import Any

import pytest

from mc2perf.measured import Measured
from mc2perf.problems import InputError
from mc2perf.readers.measured import read_measured


def aside(found: Measured) -> dict[str, int]:
    return {rows.reason: rows.count for rows in found.report.set_aside}


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_measured(path)
    assert all("\n" not in problem for problem in caught.value.problems)
    return str(caught.value)


HCCL = """mpirun -n 8 ./bin/all_reduce_test -b 8K -e 64M -f 2 -d fp16 -p 8
the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 10
data_size(Bytes): | {name}(us): | alg_bandwidth(GB/s): | check_result:
8192 | 61.61 | {small} | success
1048576 | 75.08 | {middle} | NULL
67108864 | 930.78 | {large} | success
67108864 | 900.00 | 74.56541 | success
1024 | 50.00 | 0.02048 | failed
2048 | 50.00 | 3.00000 | success
4096 | 50.00
"""


OLD = """# Using devices
#  Rank  0 Pid  1 on  node device  0 [0x07] X
#  Rank  1 Pid  1 on  node device  1 [0x0a] X
#                                         out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    40.00   26.21   26.21  1e-07    41.00   25.58   25.58  1e-07
     2097152        524288   float            60.00   34.95   34.95  0e+00    61.00   34.38   34.38  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 30.0
"""


NEW = """# nccl-tests version 2.17.1
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on node device  0 [0000:07:00] X
#  Rank  1 Group  0 Pid 1 on node device  1 [0000:0a:00] X
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.00   26.21   26.21       0    41.00   25.58   25.58     N/A
     2097152        524288     float     sum      -1    60.00   34.95   34.95     N/A    61.00   34.38   34.38       0
     4194304       1048576     float     sum      -1    90.00   46.60   46.60       7    61.00   34.38   34.38       0
     8388608       2097152     float     sum      -1    90.00   46.60   46.60       0    61.00   34.38   34.38       0
"""


EACH = """#       size  count  type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%
 1048576 262144 float sum -1 40.00 26.21 26.21 0 38.0 44.0 43.9 2.1
 2097152 524288 float sum -1 60.00 34.95 34.95 0 58.0 64.0 63.9 2.1
"""


STEP = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"


REST = "Communication(Not Overlapped and Exclude Receive)"


ROW = "50,8000.0,6000.0,2000.0,8000.0,1000.0,15000.0,0,6000.0"


GENERATIONS = {
    "2023": f"{STEP},{REST}\n{ROW}\n",
    "2025": f"{STEP},{REST},Preparing\r\n{ROW},17902.5\r\n",
    "newest": f"\ufeffDevice_id,{STEP},{REST},Preparing\n0,{ROW},N/A\n",
    "blank step": f"{STEP},{REST}\n{ROW.removeprefix('50')}\n",
    "cluster": f"{STEP.replace('Step,', 'Step,Type,Index,')},{REST},DP Index\n"
    f"{ROW.replace('50,', '50,rank,0,', 1)},0\n" + f'{ROW.replace("50,", """50,stage,"(0, 1)",""", 1)},0\n',
}


def op(size: float = 28.0, transit: float = 0.25, elapsed: float = 80.0, **links: Any) -> dict[str, Any]:
    link = {"Transit Size(MB)": size, "Transit Time(ms)": 7 * transit, "Bandwidth(GB/s)": 15.7}
    none = {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0}
    times = {"Elapse": elapsed, "Transit": transit, "Wait": 5.0, "Idle": elapsed - transit - 5.0}
    return {
        "Communication Time Info": {f"{key} Time(ms)": value for key, value in times.items()},
        "Communication Bandwidth Info": {"RDMA": none, "HCCS": link, "PCIE": none, "SDMA": link, **links},
    }


NESTED = {
    "one rank": {"step50": {"p2p": {}, "collective": {"hcom_allReduce__1_0@7": op(), "Total Op Info": op()}}},
    "bare step": {"step": {"collective": {"hcom_allReduce__1_0@7": op(), "Total Op Info": op()}}},
    "cluster": {"collective": {"step2": {"hcom_allReduce__1_0@7": {"0": op()}}}},
    "old cluster": {"(0, 1)": {"step": {"hcom_allReduce__1_0@7": {"0": op()}}}},
}


LEVEL0 = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"


LEVEL0_ROWS = (
    "50,trans_TransData_0,N/A,N/A,1736405443881410.320\t,50.621,0,32",
    "50,aclnnMm_MatMul_1,N/A,AI_CORE,1736405443881500.001\t,100.0,0,24",
    "50,hcom_allReduce__868_0_1,N/A,HCCL,1736405443909176.934\t,72994.438,320.026,0",
)


NEWEST = (
    "Device_id,Step ID,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
    "Duration(us),Wait Time(us),Block Num,Mix Block Num,Input Shapes"
)


NEWEST_ROWS = (
    '0,50,4294967295,1,2,MatMulV2_1,MatMulV2,dynamic,AI_CORE,1736405443881500.001\t,100.0,0,24,0,"""4096,512;512,64"""',
    "0,50,4294967295,N/A,N/A,hcom_allGather__868_0_1,hcom_allGather_,N/A,COMMUNICATION,1736405443909176.934\t,500.0,0,0,0,N/A",
    "0,50,4294967295,9,40,allgatherAivKernel_1,allgatherAivKernel,N/A,AI_VECTOR_CORE,1736405443909180.100\t,490.0,0,8,0,N/A",
    "0,50,4294967295,N/A,N/A,hcom_allGather__999_0_1,hcom_allGather_,N/A,COMMUNICATION,1736405443909176.934\t,400.0,0,0,0,N/A",
)


SUMMARY = "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Dim"


LINE = "iteration {n:8d}/ 100 | consumed samples: 8 | elapsed time per iteration (ms): {t} | learning rate: 1E-06 |"


def log(*times: float, start: int = 1) -> str:
    lines = (LINE.format(n=n, t=t) for n, t in enumerate(times, start))
    return "".join(
        f" [2024-04-06 03:04:49.123] {line} global batch size:   128 | lm loss: 1 |\n" for line in lines
    )
