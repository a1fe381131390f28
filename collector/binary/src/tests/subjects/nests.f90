! DO nests in a module's procedures.
module nests
  implicit none
contains
  subroutine multiply(n, a, b, c)
    integer, intent(in) :: n
    real(8), intent(in) :: a(n, n), b(n, n)
    real(8), intent(inout) :: c(n, n)
    integer :: i, j, k
    do j = 1, n ! loop multiply.outer
      do k = 1, n ! loop multiply.middle
        do i = 1, n ! loop multiply.inner
          c(i, j) = c(i, j) + a(i, k) * b(k, j)
        end do
      end do
    end do
  end subroutine multiply

  subroutine relax(n, steps, u)
    integer, intent(in) :: n, steps
    real(8), intent(inout) :: u(n)
    integer :: step, i
    external :: report
    do step = 1, steps ! loop relax.outer
      do i = 2, n - 1 ! loop relax.inner
        u(i) = 0.5d0 * (u(i - 1) + u(i + 1))
      end do
      call report(step)
    end do
  end subroutine relax

  integer function first(n, u)
    integer, intent(in) :: n
    real(8), intent(in) :: u(n)
    integer :: i
    first = 0
    do i = 1, n ! loop first
      if (u(i) < 0) cycle
      if (u(i) > 1) then
        first = i
        exit
      end if
      call report(i)
    end do
  end function first
end module nests
