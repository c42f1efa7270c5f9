# Links a test so that the operating system's calls of failing_calls.def go through their wrappers.
function(spillway_wrap_calls target)
  foreach(name open openat close unlinkat fallocate ftruncate fstatvfs fstatfs fstat getrlimit pread pwrite mmap munmap
               madvise eventfd syscall io_uring_queue_init io_uring_register_files io_uring_submit
               io_uring_submit_and_wait_timeout
               _ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE)
    target_link_options(${target} PRIVATE "-Wl,--wrap=${name}")
  endforeach()
  # With a sanitizer some of these are the sanitizer's own, which must not be gone around.
endfunction()
