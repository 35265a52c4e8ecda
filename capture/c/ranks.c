/* A layer split over ranks: each writes its shard to a file of its own, trace.rank0.safetensors and so on. The rank
 * comes from the launcher's environment (mpirun, srun, torchrun); a program that knows better sets it in struct
 * ts_dump_tensor.
 *
 *     mpicc -O2 -I include capture/c/ranks.c -o ranks
 *     TSLEUTH_DUMP=trace.safetensors mpirun -n 4 ./ranks
 *
 * Without MPI: cc -DWITHOUT_MPI, and RANK=0 WORLD_SIZE=4 in the environment of each process. */
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include <stdio.h>
#include <stdlib.h>
#ifndef WITHOUT_MPI
#include <mpi.h>
#endif

int main(int argc, char **argv)
{
    const int64_t shape[2] = {4, 2};
    float shard[4 * 2];
    int rank = 0;
#ifdef WITHOUT_MPI
    (void)argc;
    (void)argv;
    if (getenv("RANK"))
        rank = (int)strtol(getenv("RANK"), NULL, 10);
#else
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 2; i++)
            shard[t * 2 + i] = (float)(t * 100 + rank * 2 + i);
    ts_dump_f32("model.layers.0.mlp.up_proj", shard, 2, shape);
#ifndef WITHOUT_MPI
    MPI_Finalize();
#endif
    return 0;
}
