! What Fortran does with its stack: results through hidden arguments, complex and character results,
! automatic arrays, internal procedures as arguments (their trampolines lie on the stack), and the
! runtime library's input and output.
module trials
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
contains

  ! Work of a few microseconds.
  function toil(seed) result(next)
    integer(int64), intent(in) :: seed
    integer(int64) :: next
    integer :: i
    next = seed
    do i = 1, 1000
      next = mod(next * 1103515245_int64 + 12345_int64, 2147483648_int64)
    end do
  end function

  recursive function turned(depth, value) result(z)
    integer, intent(in) :: depth
    complex(real64), intent(in) :: value
    complex(real64) :: z
    if (toil(int(depth, int64)) < 0) stop 3
    z = value
    if (depth > 0) z = turned(depth - 1, value * (0.0_real64, 1.0_real64)) &
        * (0.0_real64, -1.0_real64)
  end function

  recursive function spelled(depth) result(text)
    integer, intent(in) :: depth
    character(len=depth) :: text
    if (toil(int(depth, int64)) < 0) stop 3
    if (depth > 1) text(2:) = spelled(depth - 1)
    text(1:1) = achar(iachar('a') + mod(depth, 26))
  end function

  recursive function scaled(depth, values) result(sums)
    integer, intent(in) :: depth
    real(real64), intent(in) :: values(:)
    real(real64) :: sums(size(values))
    real(real64) :: automatic(size(values) + depth)
    automatic = real(depth, real64)
    if (toil(int(depth, int64)) < 0) stop 3
    sums = values
    if (depth > 0) sums = scaled(depth - 1, values) + automatic(1:size(values))
  end function

  function applied(procedure_in, count) result(total)
    interface
      function procedure_in(i) result(value)
        integer, intent(in) :: i
        integer :: value
      end function
    end interface
    integer, intent(in) :: count
    integer :: total, i
    total = 0
    do i = 1, count
      total = total + procedure_in(i)
    end do
  end function

  logical function results_of_all_kinds(round) result(good)
    integer, intent(in) :: round
    complex(real64) :: z
    character(len=9) :: text
    real(real64) :: sums(7)
    z = turned(mod(round, 13), (2.5_real64, -1.25_real64))
    text = spelled(9)
    sums = scaled(4, [1, 2, 3, 4, 5, 6, 7] * 1.0_real64)
    good = z == (2.5_real64, -1.25_real64) .and. text == 'jihgfedcb' &
        .and. all(sums == [11, 12, 13, 14, 15, 16, 17])
  end function

  logical function internal_procedures(round) result(good)
    integer, intent(in) :: round
    integer :: offset
    offset = mod(round, 100)
    good = applied(shifted, 20) == 210 + 20 * offset
  contains
    function shifted(i) result(value)
      integer, intent(in) :: i
      integer :: value
      if (toil(int(i, int64)) < 0) stop 3
      value = i + offset
    end function
  end function

  logical function formatted(round) result(good)
    integer, intent(in) :: round
    character(len=400) :: line
    real(real64) :: values(12), again(12)
    integer :: i, status
    values = [(round + i / 8.0_real64, i = 1, 12)]
    write (line, '(12(1x,f16.4))') values
    read (line, *, iostat=status) again
    good = status == 0 .and. all(abs(values - again) < 1e-3_real64)
    read (line, '(i4)', iostat=status) i
    good = good .and. status >= 0
  end function
end module

program fortran_trials
  use trials
  implicit none
  integer :: failures
  failures = 0
  call attempt('results of all kinds', results_of_all_kinds)
  call attempt('internal procedures', internal_procedures)
  call attempt('formatted input and output', formatted)
  if (failures /= 0) error stop 1
contains
  subroutine attempt(name, trial)
    character(len=*), intent(in) :: name
    interface
      logical function trial(round)
        integer, intent(in) :: round
      end function
    end interface
    character(len=32) :: wanted
    real(real64) :: seconds, begin, now
    integer :: round, status
    logical :: good
    call get_environment_variable('TRIAL_S', wanted, status=status)
    seconds = 0.3_real64
    if (status == 0) read (wanted, *) seconds
    good = .true.
    round = 0
    call cpu_time(begin)
    do
      good = trial(round) .and. good
      round = round + 1
      call cpu_time(now)
      if (round > 3 .and. now - begin > seconds) exit
    end do
    if (.not. good) failures = failures + 1
    write (*, '(2a)') name, merge(': right', ': WRONG', good)
  end subroutine
end program
