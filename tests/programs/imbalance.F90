! The last quarter of the ranks works `factor` times longer in work_uneven; the others wait for them
! in MPI_Allreduce. As imbalance.c, by sleeping, with each of Fortran's three interfaces to MPI:
! SUBJECT_MPIF_H, SUBJECT_USE_MPI or SUBJECT_USE_MPI_F08 is defined.
module work
    use, intrinsic :: iso_c_binding, only: c_int
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none

    interface
        function usleep(microseconds) bind(c) result(status)
            import :: c_int
            integer(c_int), value :: microseconds
            integer(c_int) :: status
        end function
    end interface

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

    function wall_s() result(seconds)
        real(real64) :: seconds
        integer(int64) :: count, rate
        call system_clock(count, rate)
        seconds = real(count, real64)/real(rate, real64)
    end function

    ! The number that an argument of the program gives, or the default.
    function argument(at, default) result(number)
        integer, intent(in) :: at
        real(real64), intent(in) :: default
        real(real64) :: number
        character(len=32) :: text
        number = default
        if (command_argument_count() < at) return
        call get_command_argument(at, text)
        read (text, *) number
    end function

    ! Writes what the subject says about itself to the file that SUBJECT_TRUTH names.
    subroutine write_truth(all_s, first_slow, elapsed_s)
        real(real64), intent(in) :: all_s(:, :), elapsed_s
        integer, intent(in) :: first_slow
        character(len=4096) :: path
        integer :: ranks, iterations, unit, status, i
        real(real64) :: loss_s
        iterations = size(all_s, 1)
        ranks = size(all_s, 2)
        call get_environment_variable('SUBJECT_TRUTH', path, status=status)
        if (status /= 0) return
        loss_s = sum([(maxval(all_s(i, :)) - sum(all_s(i, :))/ranks, i=1, iterations)])
        open (newunit=unit, file=trim(path), status='replace')
        write (unit, '(a, 2(i0, a), 2(f20.9, a))') '{"subject": "imbalance", "ranks": ', ranks, &
            ', "iterations": ', iterations, ', "elapsed_s": ', elapsed_s, &
            ', "expected_loss_s": ', loss_s, ', "cause": "work::work_uneven"'
        if (first_slow == ranks - 1) then
            write (unit, '(a, i0, a)') ', "slow_ranks": "', first_slow, '"'
        else
            write (unit, '(a, i0, a, i0, a)') ', "slow_ranks": "', first_slow, '-', ranks - 1, '"'
        end if
        write (unit, '(a)') ', "symptom": "MPI_Allreduce", "work_s": ['
        do i = 1, ranks
            write (unit, '(f20.9, a)') sum(all_s(:, i)), merge(']}', ', ', i == ranks)
        end do
        close (unit)
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
        call write_truth(all_s, first_slow, wall_s() - begin_s)
        write (*, '(3(a, i0))') 'imbalance: ', ranks, ' ranks, ', iterations, ' iterations, checksum ', checksum
    end if
    call MPI_Finalize(ierror)
end program
