"""Read a kernel_details.csv of gigabytes, and report how long it took and how much memory.

``python scripts/large_kernels.py [GIGABYTES] [FOLDER]`` writes the file (2 GB unless said otherwise) with the
columns of a level-1 export of 2025: time stamps with a TAB, shapes in triple quotes, doubled rows of
communication. It is read in a process of its own, checked against what was written, and removed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,"
    "aic_mac_time(us),aic_mac_ratio,aic_mte2_time(us),aic_mte2_ratio,aiv_time(us),cube_utilization(%)\n"
)
METRICS = "101.2,4371840,61.4,0.607,77.8,0.769,0.0,61.3"
LAYER = (
    "{s},4294967295,{t},2,aclnnMm_MatMulCommon_MatMulV2_{i},MatMulV2,dynamic,AI_CORE,{a}.320\t,115.25,1.5,24,0,NO,"
    '"""4096,512;512,640""",DT_BF16;DT_BF16,ND;ND,"""4096,640""",DT_BF16,ND,N/A,' + METRICS + "\n"
    "{s},4294967295,{t},2,aclnnCast_CastAiCore_Cast_{i},Cast,dynamic,AI_VECTOR_CORE,{b}.001\t,4.5,0.5,48,0,NO,"
    '"""4096,640""",DT_BF16,ND,"""4096,640""",FLOAT,ND,N/A,0.0,0,0.0,0.0,0.0,0.0,4.1,0\n'
    "{s},4294967295,N/A,N/A,hcom_allGather__868_{i}_1,hcom_allGather_,N/A,COMMUNICATION,{c}.934\t,500.0,20.0,0,0,N/A,"
    "N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n"
    "{s},4294967295,9,40,allgatherAivKernel_{i},allgatherAivKernel,N/A,AI_VECTOR_CORE,{c}.950\t,490.0,0,8,0,N/A,"
    "N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n"
)
START = 1_736_405_443_000_000


def write(file: Path, size: int) -> int:
    """Layers of four rows until the file has its size; how many."""
    layers = 0
    with file.open("w", encoding="utf-8", newline="") as out:
        out.write(HEADER)
        while out.tell() < size if layers % 1000 == 0 else True:
            at = START + 1000 * layers
            out.write(
                LAYER.format(s=layers // 1000, t=layers % 65536, i=layers, a=at, b=at + 200, c=at + 300)
            )
            layers += 1
    return layers


READ = """
import sys, time
from mc2perf.readers.measured import read_measured
begin = time.perf_counter()
found = read_measured(sys.argv[1])
print(time.perf_counter() - begin, found.report.read, sum(a.count for a in found.report.set_aside),
      sum(k.total for k in found.data.compute), sum(k.count for k in found.data.communication))
"""


def main() -> None:
    """Write, read, compare, report."""
    size = float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e9
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        file = Path(made) / "kernel_details.csv"
        begin = time.perf_counter()
        layers = write(file, int(size))
        written = file.stat().st_size
        print(f"wrote {written / 1e9:.2f} GB, {4 * layers} rows, in {time.perf_counter() - begin:.0f} s")
        command = [sys.executable, "-c", READ, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    seconds, *found = map(float, done.stdout.split())
    print(f"read in {seconds:.0f} s ({written / seconds / 1e6:.1f} MB/s), peak memory {peak / 1e6:.0f} MB")
    wanted = [3 * layers, layers, layers * 119.75e-6, layers]
    good = all(abs(f - w) <= 1e-9 * w for f, w in zip(found, wanted, strict=True))
    if not good:
        raise SystemExit(f"read {found}, wrote {wanted}")


if __name__ == "__main__":
    main()
