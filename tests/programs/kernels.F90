! Three internal procedures, all inlined into the program at -O3. One of them, smooth, works
! `factor` times longer on the last quarter of the ranks or, with "turns" as the fifth argument,
! each time on another rank. By sleeping, as kernels.cpp.
#include "subject.F90"

program kernels
    use subject
    use mpi
    implicit none
    integer :: rank, ranks, first_slow, iterations, sweeps, i, ierror
    integer(int64) :: part, total, checksum
    real(real64) :: factor, begin_s, start_s, values(3)
    real(real64), allocatable :: work_s(:), all_s(:, :)
    character(len=8) :: how
    logical :: slow, turns

    iterations = nint(argument(2, 20.0_real64))
    sweeps = nint(argument(3, 10.0_real64))
    factor = argument(4, 3.0_real64)
    how = ''
    if (command_argument_count() >= 5) call get_command_argument(5, how)
    turns = how == 'turns'
    call MPI_Init(ierror)
    begin_s = wall_s()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    first_slow = ranks - max(ranks/4, 1)
    allocate (work_s(iterations), all_s(iterations, ranks))
    checksum = 0
    values = 1
    do i = 1, iterations
        slow = merge(mod(i - 1, ranks) == rank, rank >= first_slow, turns)
        start_s = wall_s()
        call assemble(sweeps)
        call smooth(merge(nint(sweeps*factor), sweeps, slow))
        call residual(sweeps)
        work_s(i) = wall_s() - start_s
        part = int(rank + 1, int64)*i
        call MPI_Allreduce(part, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
        checksum = checksum + total
    end do
    call MPI_Gather(work_s, iterations, MPI_DOUBLE_PRECISION, all_s, iterations, &
                    MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) then
        call write_truth('kernels', 'smooth', all_s, merge(-1, first_slow, turns), &
            wall_s() - begin_s)
        write (*, '(3(a, i0))') 'kernels: ', ranks, ' ranks, ', iterations, &
            ' iterations, checksum ', checksum
    end if
    call MPI_Finalize(ierror)

contains

    subroutine assemble(count)
        integer, intent(in) :: count
        integer :: sweep
        integer(c_int) :: status
        do sweep = 1, count
            status = usleep(1000_c_int)
            values(1) = values(1) + status
        end do
    end subroutine

    subroutine smooth(count)
        integer, intent(in) :: count
        integer :: sweep
        integer(c_int) :: status
        do sweep = 1, count
            status = usleep(1000_c_int)
            values(2) = values(2) + values(1)*status
        end do
    end subroutine

    subroutine residual(count)
        integer, intent(in) :: count
        integer :: sweep
        integer(c_int) :: status
        do sweep = 1, count
            status = usleep(1000_c_int)
            values(3) = values(3) + (values(1) - values(2))*status
        end do
    end subroutine

end program
