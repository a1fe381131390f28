! What subjects with OpenMP in Fortran share, as teams.h in C: regions as a right diagnosis shows
! them, and work of known length.
#include "subject.F90"

module teams
    use subject
    use omp_lib
    use, intrinsic :: iso_c_binding, only: c_long
    implicit none

    integer, parameter :: max_team = 64

    ! A parallel region as a right diagnosis shows it; open_s is by thread number.
    type :: region_type
        integer :: line = 0, threads = 0, instances = 0
        real(real64) :: elapsed_s = 0, imbalance_s = 0, start_s = 0
        real(real64) :: work_s(max_team) = 0, open_s(max_team) = 0
    end type

    type, bind(c) :: timespec
        integer(c_long) :: seconds, nanoseconds
    end type

    interface
        function clock_gettime(clock, now) bind(c) result(status)
            import :: c_int, timespec
            integer(c_int), value :: clock
            type(timespec), intent(out) :: now
            integer(c_int) :: status
        end function
    end interface

    logical :: sleeps = .true.
    real(real64) :: ms, factor, steps_per_us = 0
    real(real64) :: waited_s(max_team) = 0
    type(region_type) :: shown, inner(2)

contains

    function thread_cpu_s() result(seconds)
        real(real64) :: seconds
        type(timespec) :: now
        integer(c_int) :: status
        status = clock_gettime(3_c_int, now)
        seconds = real(now%seconds, real64) + 1e-9_real64*real(now%nanoseconds, real64)
    end function

    subroutine busy_steps(steps, value)
        integer(int64), intent(in) :: steps
        integer(int64), intent(inout) :: value
        integer(int64) :: i
        do i = 1, steps
            value = ieor(ishft(value, 13), ieor(value, i))
        end do
    end subroutine

    subroutine calibrate()
        integer(int64) :: value
        integer :: trial
        real(real64) :: start_s
        value = 1
        do trial = 1, 20
            start_s = wall_s()
            call busy_steps(100000_int64, value)
            steps_per_us = max(steps_per_us, 100000/(max(wall_s() - start_s, 1e-7_real64)*1e6))
        end do
        if (value == 0) print *, value
    end subroutine

    subroutine busy_us(microseconds)
        real(real64), intent(in) :: microseconds
        integer(int64) :: value
        value = 1
        call busy_steps(int(microseconds*steps_per_us, int64), value)
        if (value == 0) print *, value
    end subroutine

    subroutine work_item(times)
        real(real64), intent(in) :: times
        integer(c_int) :: status
        integer(int64) :: value
        real(real64) :: end_s
        if (sleeps) then
            status = usleep(nint(ms*times*1000, c_int))
        else
            value = 1
            end_s = thread_cpu_s() + ms*times*1e-3_real64
            do while (thread_cpu_s() < end_s)
                call busy_steps(20000_int64, value)
            end do
            if (value == 0) print *, value
        end if
    end subroutine

    subroutine begin_region(region, line)
        type(region_type), intent(inout) :: region
        integer, intent(in) :: line
        region%line = line
        region%start_s = wall_s()
    end subroutine

    subroutine end_region(region, threads)
        type(region_type), intent(inout) :: region
        integer, intent(in) :: threads
        region%elapsed_s = region%elapsed_s + wall_s() - region%start_s
        region%imbalance_s = region%imbalance_s + maxval(region%open_s(:threads)) &
            - sum(region%open_s(:threads))/threads
        region%work_s = region%work_s + region%open_s
        region%open_s = 0
        region%threads = max(region%threads, threads)
        region%instances = region%instances + 1
    end subroutine

    subroutine add_work(region, start_s)
        type(region_type), intent(inout) :: region
        real(real64), intent(in) :: start_s
        integer :: thread
        thread = omp_get_thread_num() + 1
        region%open_s(thread) = region%open_s(thread) + wall_s() - start_s
    end subroutine

    subroutine work_in(region, times)
        type(region_type), intent(inout) :: region
        real(real64), intent(in) :: times
        real(real64) :: start_s
        start_s = wall_s()
        call work_item(times)
        call add_work(region, start_s)
    end subroutine

    subroutine tell(unit, key, value)
        integer, intent(in) :: unit
        character(len=*), intent(in) :: key
        real(real64), intent(in) :: value
        write (unit, '(3a, es20.9)') ', "', key, '": ', value
    end subroutine

    subroutine tell_text(unit, key, value)
        integer, intent(in) :: unit
        character(len=*), intent(in) :: key, value
        if (value == '') then
            write (unit, '(3a)') ', "', key, '": null'
        else
            write (unit, '(5a)') ', "', key, '": "', trim(value), '"'
        end if
    end subroutine

end module
