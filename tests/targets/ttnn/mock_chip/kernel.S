/* A kernel that does nothing: the loader wants an entry, a relocation and some data. */
.section .start, "ax"
.globl _start
_start:
  la a0, nothing
  call done
  ret
.text
.globl done
done:
  ret
.data
nothing:
  .word 0
