! As openmp_kinds.c in Fortran. The fifth argument is the kind: static, dynamic, guided, even,
! serial, critical, convoy, tasks, regions or nested. With SUBJECT_USE_MPI on several ranks.
#include "teams.F90"

module kinds
    use teams
    implicit none

contains

    subroutine loop_static(slow)
        real(real64), intent(in) :: slow
        integer :: i, threads
        threads = omp_get_max_threads()
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel do schedule(static)
        do i = 1, 2*threads
            call work_in(shown, merge(slow, 1.0_real64, i > 2*threads - 2))
        end do
        !$omp end parallel do
        call end_region(shown, threads)
    end subroutine

    subroutine loop_dynamic()
        integer :: i, threads
        threads = omp_get_max_threads()
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel do schedule(dynamic)
        do i = 1, 2*threads + 1
            call work_in(shown, merge(factor, 1.0_real64, i > 2*threads))
        end do
        !$omp end parallel do
        call end_region(shown, threads)
    end subroutine

    subroutine loop_guided()
        integer :: i, threads
        threads = omp_get_max_threads()
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel do schedule(guided)
        do i = 1, 8*threads
            call work_in(shown, merge(4*factor, 1.0_real64, i <= 4))
        end do
        !$omp end parallel do
        call end_region(shown, threads)
    end subroutine

    subroutine work_alone(serial_s)
        real(real64), intent(inout) :: serial_s
        real(real64) :: start_s
        start_s = wall_s()
        call work_item(factor)
        serial_s = serial_s + wall_s() - start_s
    end subroutine

    subroutine work_together()
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel
        call work_in(shown, 1.0_real64)
        !$omp end parallel
        call end_region(shown, omp_get_max_threads())
    end subroutine

    subroutine update_one_by_one()
        call work_item(1.0_real64)
    end subroutine

    subroutine enter_critical(iterations)
        integer, intent(in) :: iterations
        integer :: i, thread
        real(real64) :: start_s, inside_s
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel private(i, thread, start_s, inside_s)
        thread = omp_get_thread_num() + 1
        do i = 1, iterations
            start_s = wall_s()
            !$omp critical
            inside_s = wall_s()
            call update_one_by_one()
            !$omp end critical
            waited_s(thread) = waited_s(thread) + inside_s - start_s
            call add_work(shown, inside_s)
            call work_in(shown, 0.1_real64)
        end do
        !$omp end parallel
        call end_region(shown, omp_get_max_threads())
    end subroutine

    subroutine hold(lock, times)
        integer(omp_lock_kind), intent(inout) :: lock
        real(real64), intent(in) :: times
        real(real64) :: start_s, inside_s
        integer :: thread
        thread = omp_get_thread_num() + 1
        start_s = wall_s()
        call omp_set_lock(lock)
        inside_s = wall_s()
        waited_s(thread) = waited_s(thread) + inside_s - start_s
        call work_item(times)
        call add_work(shown, inside_s)
        call omp_unset_lock(lock)
    end subroutine

    subroutine pass_locks(iterations)
        integer, intent(in) :: iterations
        integer(omp_lock_kind) :: locks(3)
        integer :: i, k
        do k = 1, 3
            call omp_init_lock(locks(k))
        end do
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel private(i, k)
        do i = 1, iterations
            do k = 1, 3
                call hold(locks(k), merge(factor, 1.0_real64, k == 2))
            end do
        end do
        !$omp end parallel
        call end_region(shown, omp_get_max_threads())
        do k = 1, 3
            call omp_destroy_lock(locks(k))
        end do
    end subroutine

    subroutine make_tasks(tasks)
        integer, intent(in) :: tasks
        integer :: i
        call begin_region(shown, __LINE__ + 1)
        !$omp parallel
        !$omp single
        do i = 1, tasks
            !$omp task
            call busy_us(1.0_real64)
            !$omp end task
        end do
        !$omp end single
        !$omp end parallel
        call end_region(shown, omp_get_max_threads())
    end subroutine

    subroutine open_regions(regions)
        integer, intent(in) :: regions
        integer :: i
        do i = 1, regions
            call begin_region(shown, __LINE__ + 1)
            !$omp parallel
            call busy_us(1.0_real64)
            !$omp end parallel
            call end_region(shown, omp_get_max_threads())
        end do
    end subroutine

    subroutine loop_inside(region, threads)
        type(region_type), intent(inout) :: region
        integer, intent(in) :: threads
        integer :: i
        call begin_region(region, __LINE__ + 1)
        !$omp parallel do schedule(static) num_threads(threads)
        do i = 1, 2*threads
            call work_in(region, merge(factor, 1.0_real64, i > 2*threads - 2))
        end do
        !$omp end parallel do
        call end_region(region, threads)
    end subroutine

    subroutine nest()
        integer :: threads
        threads = omp_get_max_threads()
        !$omp parallel num_threads(2)
        call loop_inside(inner(omp_get_thread_num() + 1), threads)
        !$omp end parallel
    end subroutine

end module

program openmp_kinds
    use kinds
#if defined(SUBJECT_USE_MPI)
    use mpi
#endif
    implicit none
    integer :: rank, ranks, iterations, i, pieces
    integer(int64) :: part, total, checksum
    real(real64) :: begin_s, serial_s, loss_s
    character(len=32) :: how, mode
    character(len=32) :: loss, cause, schedule
    logical :: locks
#if defined(SUBJECT_USE_MPI)
    integer :: ierror, provided
#endif

    call get_command_argument(1, mode)
    call get_command_argument(5, how)
    sleeps = mode == 'sleep'
    iterations = nint(argument(2, 20.0_real64))
    ms = argument(3, 10.0_real64)
    factor = argument(4, 3.0_real64)
    pieces = nint(1000*factor)
    rank = 0
    ranks = 1
    call calibrate()
#if defined(SUBJECT_USE_MPI)
    call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
#endif
    begin_s = wall_s()
    loss = 'thread_imbalance'
    cause = 'work_item'
    schedule = ''
    serial_s = 0
    checksum = 0
    locks = how == 'critical' .or. how == 'convoy'
    call omp_set_max_active_levels(merge(2, 1, how == 'nested'))
    do i = 1, merge(1, iterations, locks)
        select case (how)
        case ('static')
            schedule = how
            call loop_static(factor)
        case ('even')
            schedule = 'static'
            loss = ''
            cause = ''
            call loop_static(1.0_real64)
        case ('dynamic')
            schedule = how
            call loop_dynamic()
        case ('guided')
            schedule = how
            call loop_guided()
        case ('serial')
            loss = 'serial_section'
            cause = 'work_alone'
            call work_together()
            call work_alone(serial_s)
        case ('critical')
            loss = 'lock_contention'
            cause = 'update_one_by_one'
            call enter_critical(iterations)
        case ('convoy')
            loss = 'lock_contention'
            cause = 'hold'
            call pass_locks(iterations)
        case ('tasks')
            loss = 'fine_grained_tasks'
            cause = 'make_tasks'
            call make_tasks(pieces)
        case ('regions')
            loss = 'fine_grained_regions'
            cause = 'open_regions'
            call open_regions(pieces)
        case ('nested')
            schedule = 'static'
            call nest()
        case default
            stop 2
        end select
        part = int(rank + 1, int64)*i
        total = part
#if defined(SUBJECT_USE_MPI)
        call MPI_Allreduce(part, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
#endif
        checksum = checksum + total
    end do
    if (how == 'nested') then
        shown = inner(1)
        shown%instances = inner(1)%instances + inner(2)%instances
        shown%imbalance_s = (inner(1)%imbalance_s + inner(2)%imbalance_s)/2
    end if
    loss_s = shown%imbalance_s
    if (how == 'serial') loss_s = serial_s*(shown%threads - 1)/shown%threads
    if (locks) loss_s = sum(waited_s)/shown%threads
    if (how == 'tasks') loss_s = shown%elapsed_s - 1e-6_real64*pieces*iterations/shown%threads
    if (how == 'regions') loss_s = shown%elapsed_s - 1e-6_real64*pieces*iterations
#if defined(SUBJECT_USE_MPI)
    call take_mean(loss_s)
    call take_mean(serial_s)
    call take_mean(shown%elapsed_s)
    call take_mean(shown%imbalance_s)
#endif
    if (rank == 0) then
        call write_hybrid_truth(wall_s() - begin_s)
        write (*, '(3a, 3(i0, a))') 'openmp_kinds ', trim(how), ': ', ranks, ' ranks, ', &
            iterations, ' iterations, checksum ', checksum
    end if
#if defined(SUBJECT_USE_MPI)
    call MPI_Finalize(ierror)
#endif

contains

#if defined(SUBJECT_USE_MPI)
    subroutine take_mean(value)
        real(real64), intent(inout) :: value
        real(real64) :: total_s
        total_s = 0
        call MPI_Reduce(value, total_s, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
        value = total_s/ranks
    end subroutine
#endif

    subroutine write_hybrid_truth(elapsed_s)
        real(real64), intent(in) :: elapsed_s
        character(len=4096) :: path
        integer :: unit, status, t
        call get_environment_variable('SUBJECT_TRUTH', path, status=status)
        if (status /= 0) return
        open (newunit=unit, file=trim(path), status='replace')
        write (unit, '(a)') '{"subject": "openmp_kinds", "file": "openmp_kinds.F90"'
        call tell(unit, 'ranks', real(ranks, real64))
        call tell(unit, 'iterations', real(iterations, real64))
        call tell(unit, 'elapsed_s', elapsed_s)
        call tell(unit, 'line', real(shown%line, real64))
        call tell(unit, 'threads', real(shown%threads, real64))
        call tell(unit, 'instances', real(shown%instances, real64))
        call tell(unit, 'region_s', shown%elapsed_s)
        call tell(unit, 'imbalance_s', shown%imbalance_s)
        call tell(unit, 'expected_loss_s', loss_s)
        call tell(unit, 'serial_s', serial_s)
        call tell(unit, 'waited_s', sum(waited_s(:shown%threads))/shown%threads)
        call tell(unit, 'pieces', merge(1, 0, how == 'tasks' .or. how == 'regions') &
            *real(pieces, real64)*iterations)
        call tell_text(unit, 'schedule', schedule)
        call tell_text(unit, 'loss', loss)
        call tell_text(unit, 'cause', cause)
        write (unit, '(a)') ', "work_s": ['
        do t = 1, shown%threads
            write (unit, '(es20.9, a)') shown%work_s(t), merge(']}', ', ', t == shown%threads)
        end do
        close (unit)
    end subroutine
end program
