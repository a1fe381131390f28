! Messages between ranks, counted by the program itself, by sender and receiver: the same truth as
! that of talks.c, with each of Fortran's three interfaces to MPI. In each iteration all ranks pass
! messages around a ring and send to rank 0, which receives from any rank: once with the status, and
! once without. With a fifth argument, messages go from the first rank to the last instead: each
! rank receives, works and sends on, and the first one works longer.
#include "subject.F90"

program talks
    use subject
#if defined(SUBJECT_USE_MPI)
    use mpi
#elif defined(SUBJECT_USE_MPI_F08)
    use mpi_f08
#endif
    implicit none
#if defined(SUBJECT_MPIF_H)
    include 'mpif.h'
#endif
#if defined(SUBJECT_USE_MPI_F08)
    type(MPI_Request) :: requests(2), kept
    type(MPI_Status) :: status, statuses(2)
#define SOURCE(it) it%MPI_SOURCE
#define NUMBER(it) it%MPI_VAL
#else
    integer :: requests(2), kept
    integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
#define SOURCE(it) it(MPI_SOURCE)
#define NUMBER(it) it
#endif
    integer :: rank, ranks, next, last, iterations, i, at, pass, other, any, ierror
    logical :: passed_on
    integer, allocatable :: sent(:), received(:), all_sent(:), all_received(:)
    real(real64) :: here(12), there(12), more(12)

    iterations = nint(argument(2, 20.0_real64))
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    allocate (sent(ranks), received(ranks), all_sent(ranks*ranks), all_received(ranks*ranks))
    sent = 0
    received = 0
    here = rank
    next = modulo(rank + 1, ranks)
    last = modulo(rank - 1, ranks)
    if (command_argument_count() >= 5) then
        do i = 1, iterations
            call pass_on
        end do
        iterations = 0
    end if
    call MPI_Send_init(here, 4, MPI_DOUBLE_PRECISION, next, 7, MPI_COMM_WORLD, kept, ierror)
    do i = 1, iterations
        call MPI_Irecv(there, 12, MPI_DOUBLE_PRECISION, last, 3, MPI_COMM_WORLD, &
            requests(1), ierror)
        call MPI_Isend(here, 12, MPI_DOUBLE_PRECISION, next, 3, MPI_COMM_WORLD, requests(2), ierror)
        call MPI_Waitall(2, requests, statuses, ierror)
        call note(next, last)

        any = MPI_ANY_SOURCE
        call MPI_Irecv(there, 12, MPI_DOUBLE_PRECISION, any, 4, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Isend(here, 2, MPI_DOUBLE_PRECISION, next, 4, MPI_COMM_WORLD, requests(2), ierror)
        any = -99
        call MPI_Wait(requests(1), status, ierror)
        call note(next, SOURCE(status))
        call MPI_Irecv(there, 12, MPI_DOUBLE_PRECISION, last, 9, MPI_COMM_WORLD, &
            requests(1), ierror)
        passed_on = .false.
        do pass = 1, 2
            call MPI_Waitany(2, requests, at, MPI_STATUS_IGNORE, ierror)
            ! The message for the other request is sent when this one is complete. `at` is
            ! unreliable: with mpi_f08, MPICH 4.0 counts from zero.
            if (passed_on .or. NUMBER(requests(2)) /= NUMBER(MPI_REQUEST_NULL)) cycle
            call MPI_Send(here, 1, MPI_DOUBLE_PRECISION, next, 9, MPI_COMM_WORLD, ierror)
            passed_on = .true.
        end do
        call note(next, last)

        call MPI_Irecv(more, 12, MPI_DOUBLE_PRECISION, last, 7, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Start(kept, ierror)
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
        call MPI_Wait(kept, status, ierror)
        call note(next, last)

        call MPI_Sendrecv(here, 3, MPI_DOUBLE_PRECISION, last, 5, there, 12, MPI_DOUBLE_PRECISION, &
                          next, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
        call note(last, next)

        if (rank > 0) then
            call MPI_Send(here, 5, MPI_DOUBLE_PRECISION, 0, 6, MPI_COMM_WORLD, ierror)
            call MPI_Send(here, 5, MPI_DOUBLE_PRECISION, 0, 8, MPI_COMM_WORLD, ierror)
            sent(1) = sent(1) + 2
        else
            do other = 2, ranks
                call MPI_Recv(there, 12, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &
                              status, ierror)
                received(SOURCE(status) + 1) = received(SOURCE(status) + 1) + 1
                ! No status names the senders.
                call MPI_Recv(there, 12, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &
                              MPI_STATUS_IGNORE, ierror)
            end do
        end if
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
    end do
    call MPI_Request_free(kept, ierror)
    call MPI_Gather(sent, ranks, MPI_INTEGER, all_sent, ranks, MPI_INTEGER, 0, &
        MPI_COMM_WORLD, ierror)
    call MPI_Gather(received, ranks, MPI_INTEGER, all_received, ranks, MPI_INTEGER, 0, &
                    MPI_COMM_WORLD, ierror)
    if (rank == 0) call write_counts
    call MPI_Finalize(ierror)

contains

    subroutine pass_on
        if (rank > 0) then
            call MPI_Recv(there, 12, MPI_DOUBLE_PRECISION, rank - 1, 3, MPI_COMM_WORLD, status, &
                          ierror)
            received(rank) = received(rank) + 1
            call work_even
        else
            call work_longer
        end if
        if (rank < ranks - 1) then
            call MPI_Send(here, 12, MPI_DOUBLE_PRECISION, rank + 1, 3, MPI_COMM_WORLD, ierror)
            sent(rank + 2) = sent(rank + 2) + 1
        end if
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
    end subroutine

    subroutine work_even
        integer :: ignored
        ignored = usleep(nint(1000*argument(3, 10.0_real64)))
    end subroutine

    subroutine work_longer
        integer :: ignored
        ignored = usleep(nint(1000*argument(3, 10.0_real64)*argument(4, 5.0_real64)))
    end subroutine

    subroutine note(to, from)
        integer, intent(in) :: to, from
        sent(to + 1) = sent(to + 1) + 1
        received(from + 1) = received(from + 1) + 1
    end subroutine

    subroutine write_counts
        character(len=4096) :: path
        integer :: unit, status
        print '(a)', 'talks done'
        call get_environment_variable('SUBJECT_TRUTH', path, status=status)
        if (status /= 0) return
        open (newunit=unit, file=trim(path), status='replace')
        write (unit, '(a, i0, a)') '{"subject": "talks", "ranks": ', ranks, ', "sent": ['
        call list(unit, all_sent)
        write (unit, '(a)') '], "received": ['
        call list(unit, all_received)
        write (unit, '(a, i0, a)') '], "ignored": ', iterations*(ranks - 1), '}'
        close (unit)
    end subroutine

    subroutine list(unit, values)
        integer, intent(in) :: unit, values(:)
        integer :: it
        do it = 1, size(values)
            write (unit, '(i0, a)') values(it), merge('  ', ', ', it == size(values))
        end do
    end subroutine

end program
