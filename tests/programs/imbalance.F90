! The last quarter of the ranks works `factor` times longer in work_uneven; the others wait for them
! in MPI_Allreduce. As imbalance.c, by sleeping, with each of Fortran's three interfaces to MPI:
! SUBJECT_MPIF_H, SUBJECT_USE_MPI or SUBJECT_USE_MPI_F08 is defined.
#include "subject.F90"

module work
    use subject
    implicit none

contains

    subroutine work_even(ms)
        real(real64), intent(in) :: ms
        integer(c_int) :: status
        status = usleep(nint(ms*1000, c_int))
    end subroutine

    subroutine work_uneven(ms, factor)
        real(real64), intent(in) :: ms, factor
        integer(c_int) :: status
        status = usleep(nint(ms*factor*1000, c_int))
    end subroutine

end module

program imbalance
    use work
#if defined(SUBJECT_USE_MPI)
    use mpi
#elif defined(SUBJECT_USE_MPI_F08)
    use mpi_f08
#endif
    implicit none
#if defined(SUBJECT_MPIF_H)
    include 'mpif.h'
#endif
    integer :: rank, ranks, first_slow, iterations, i, ierror
    integer(int64) :: part, total, checksum
    real(real64) :: ms, factor, begin_s, start_s
    real(real64), allocatable :: work_s(:), all_s(:, :)

    iterations = nint(argument(2, 20.0_real64))
    ms = argument(3, 10.0_real64)
    factor = argument(4, 3.0_real64)
    call MPI_Init(ierror)
    begin_s = wall_s()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    first_slow = ranks - max(ranks/4, 1)
    allocate (work_s(iterations), all_s(iterations, ranks))
    checksum = 0
    do i = 1, iterations
        start_s = wall_s()
        call work_even(ms)
        call work_uneven(ms, merge(factor, 1.0_real64, rank >= first_slow))
        work_s(i) = wall_s() - start_s
        part = int(rank + 1, int64)*i
        call MPI_Allreduce(part, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
        checksum = checksum + total
    end do
    call MPI_Gather(work_s, iterations, MPI_DOUBLE_PRECISION, all_s, iterations, &
                    MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) then
        call write_truth('imbalance', 'work::work_uneven', all_s, first_slow, wall_s() - begin_s)
        write (*, '(3(a, i0))') 'imbalance: ', ranks, ' ranks, ', iterations, &
            ' iterations, checksum ', checksum
    end if
    call MPI_Finalize(ierror)
end program
