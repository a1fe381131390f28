! DO loops with known iterations, each many sampling periods long.
module nests
    use, intrinsic :: iso_fortran_env, only: real64, int64
    implicit none
    real(real64), volatile :: sink = 0
contains
    subroutine burn(ms)
        real(real64), intent(in) :: ms
        real(real64) :: begin, now
        integer :: i
        call cpu_time(begin)
        do
            do i = 1, 20000
                sink = sink + 1
            end do
            call cpu_time(now)
            if (now - begin >= ms * 1e-3_real64) exit
        end do
    end subroutine

    subroutine row(ms)
        real(real64), intent(in) :: ms
        call burn(ms)
        sink = sink + 1
    end subroutine

    subroutine element(ms)
        real(real64), intent(in) :: ms
        call burn(ms)
        sink = sink + 1
    end subroutine

    subroutine sweep(rows, columns, ms)
        integer, intent(in) :: rows, columns
        real(real64), intent(in) :: ms
        integer :: i, j
        do i = 1, rows
            call row(ms)
            do j = 1, columns
                call element(ms)
            end do
        end do
        sink = sink + 1
    end subroutine

    subroutine until(count, ms)
        integer, intent(in) :: count
        real(real64), intent(in) :: ms
        integer :: done
        done = 0
        do while (done < count)
            call element(ms)
            done = done + 1
            if (mod(done, 2) == 0) cycle
            call row(ms)
        end do
        sink = sink + 1
    end subroutine
end module

program main
    use nests
    implicit none
    call sweep(6, 3, 20.0_real64)
    call until(6, 20.0_real64)
end program
