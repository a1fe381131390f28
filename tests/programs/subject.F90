! What the subjects in Fortran have in common.
module subject
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

    function wall_s() result(seconds)
        real(real64) :: seconds
        integer(int64) :: count, rate
        call system_clock(count, rate)
        seconds = real(count, real64)/real(rate, real64)
    end function

    ! Returns the number in an argument of the program, or the default.
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

    ! Writes what the subject says about itself to the file that SUBJECT_TRUTH names. The ranks from
    ! first_slow on are slow; if it is negative, ranks are by turns.
    subroutine write_truth(subject, cause, all_s, first_slow, elapsed_s)
        character(len=*), intent(in) :: subject, cause
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
        write (unit, '(3a, 2(i0, a), 2(f20.9, a), 2a)') '{"subject": "', subject, '", "ranks": ', &
            ranks, ', "iterations": ', iterations, ', "elapsed_s": ', elapsed_s, &
            ', "expected_loss_s": ', loss_s, ', "cause": "', cause, '"'
        if (first_slow < 0) then
            write (unit, '(a)') ', "slow_ranks": null'
        else if (first_slow == ranks - 1) then
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
