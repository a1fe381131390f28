/* hypre's BoomerAMG on the 7-point Laplacian of a cube: `multigrid EDGE SOLVES [PRINT [SHARE]]`
 * sets it up and solves SOLVES times with EDGE points in each direction. With few points the ranks
 * mostly communicate; each set-up finds out by polling which ranks need which rows. PRINT is
 * hypre's print level: with 1, each set-up prints a table with one row per level. The last rank has
 * SHARE times as many points as another one (1 by default). */
#include <HYPRE.h>
#include <HYPRE_IJ_mv.h>
#include <HYPRE_parcsr_ls.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static HYPRE_BigInt first, last; /* rows of this rank */

static HYPRE_IJMatrix laplacian(int edge)
{
    HYPRE_IJMatrix matrix;
    HYPRE_IJMatrixCreate(MPI_COMM_WORLD, first, last, first, last, &matrix);
    HYPRE_IJMatrixSetObjectType(matrix, HYPRE_PARCSR);
    HYPRE_IJMatrixInitialize(matrix);
    const int steps[3] = {1, edge, edge * edge};
    for (HYPRE_BigInt row = first; row <= last; row++) {
        HYPRE_BigInt columns[7] = {row};
        double values[7] = {6};
        int count = 1;
        for (int d = 0; d < 3; d++) {
            int at = (int)(row / steps[d] % edge);
            if (at > 0)
                columns[count] = row - steps[d], values[count++] = -1;
            if (at < edge - 1)
                columns[count] = row + steps[d], values[count++] = -1;
        }
        HYPRE_IJMatrixSetValues(matrix, 1, &count, &row, columns, values);
    }
    HYPRE_IJMatrixAssemble(matrix);
    return matrix;
}

static HYPRE_IJVector constant(double value)
{
    HYPRE_IJVector vector;
    HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, last, &vector);
    HYPRE_IJVectorSetObjectType(vector, HYPRE_PARCSR);
    HYPRE_IJVectorInitialize(vector);
    for (HYPRE_BigInt row = first; row <= last; row++)
        HYPRE_IJVectorSetValues(vector, 1, &row, &value);
    HYPRE_IJVectorAssemble(vector);
    return vector;
}

static int solve(HYPRE_IJMatrix matrix, HYPRE_IJVector right, HYPRE_IJVector solution, int print)
{
    void *a, *b, *x;
    HYPRE_IJMatrixGetObject(matrix, &a);
    HYPRE_IJVectorGetObject(right, &b);
    HYPRE_IJVectorGetObject(solution, &x);
    HYPRE_Solver solver;
    HYPRE_BoomerAMGCreate(&solver);
    HYPRE_BoomerAMGSetTol(solver, 1e-8);
    HYPRE_BoomerAMGSetMaxIter(solver, 50);
    HYPRE_BoomerAMGSetPrintLevel(solver, print);
    HYPRE_BoomerAMGSetup(solver, a, b, x);
    HYPRE_BoomerAMGSolve(solver, a, b, x);
    int iterations;
    HYPRE_BoomerAMGGetNumIterations(solver, &iterations);
    HYPRE_BoomerAMGDestroy(solver);
    return iterations;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: multigrid EDGE SOLVES [PRINT [SHARE]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank, ranks, edge = atoi(argv[1]), solves = atoi(argv[2]);
    int print = argc > 3 ? atoi(argv[3]) : 0, share = argc > 4 ? atoi(argv[4]) : 1;
    int iterations = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    HYPRE_BigInt rows = (HYPRE_BigInt)edge * edge * edge;
    const int shares = ranks - 1 + share;
    first = rows * rank / shares;
    last = rank + 1 < ranks ? rows * (rank + 1) / shares - 1 : rows - 1;
    HYPRE_Init();
    HYPRE_IJMatrix matrix = laplacian(edge);
    HYPRE_IJVector right = constant(1);
    for (int i = 0; i < solves; i++) {
        HYPRE_IJVector solution = constant(0);
        iterations += solve(matrix, right, solution, print);
        HYPRE_IJVectorDestroy(solution);
    }
    HYPRE_IJVectorDestroy(right);
    HYPRE_IJMatrixDestroy(matrix);
    HYPRE_Finalize();
    if (rank == 0)
        printf("multigrid: %d ranks, %d iterations\n", ranks, iterations);
    MPI_Finalize();
    return 0;
}
