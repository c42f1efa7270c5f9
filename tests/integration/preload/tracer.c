/* Runs a command and writes down what it and its children did that another process could notice: which files they
 * opened (or tried to), which programs they started, and each thread and socket. With ptrace, which needs no other tool.
 *   preload_tracer FILE COMMAND...        ends with the command's status, or with 77 where tracing is not allowed */

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

enum { kSkipped = 77 };

static FILE* out_;

static void ReadText(pid_t pid, uint64_t address, char* text, size_t bytes) {
  size_t done = 0;
  text[0] = 0;
  while (done + 1 < bytes) {
    /* Page by page: the text may end just before an unmapped one. */
    size_t piece = 4096 - (size_t)((address + done) % 4096);
    if (piece > bytes - 1 - done) piece = bytes - 1 - done;
    struct iovec local = {text + done, piece}, remote = {(void*)(uintptr_t)(address + done), piece};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) break;
    if (memchr(text + done, 0, (size_t)got)) return;
    done += (size_t)got;
  }
  text[done] = 0;
}

static void Record(pid_t pid, const char* what, uint64_t address) {
  char path[4096];
  ReadText(pid, address, path, sizeof(path));
  fprintf(out_, "%s %s\n", what, path);
}

static uint64_t CloneFlags(pid_t pid, uint64_t number, const uint64_t* arguments) {
  uint64_t flags = arguments[0];
  if (number == SYS_clone3) {
    struct iovec local = {&flags, sizeof(flags)}, remote = {(void*)(uintptr_t)arguments[0], sizeof(flags)};
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)sizeof(flags)) return 0;
  }
  return flags;
}

static void RecordCall(pid_t pid, uint64_t number, const uint64_t* arguments) {
  switch (number) {
    case SYS_open:
    case SYS_creat: return Record(pid, "open", arguments[0]);
    case SYS_openat:
    case SYS_openat2: return Record(pid, "open", arguments[1]);
    case SYS_execve: return Record(pid, "exec", arguments[0]);
    case SYS_socket: fprintf(out_, "socket\n"); return;
    case SYS_io_uring_setup: fprintf(out_, "ring\n"); return;
    case SYS_clone:
    case SYS_clone3:
      if (CloneFlags(pid, number, arguments) & CLONE_THREAD) fprintf(out_, "thread\n");
      return;
    default: return;
  }
}

static void OnSyscallStop(pid_t pid) {
  struct ptrace_syscall_info info;
  memset(&info, 0, sizeof(info));
  if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0) return;
  uint64_t arguments[6];
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
  for (int i = 0; i < 6; ++i) arguments[i] = info.entry.args[i];
  RecordCall(pid, info.entry.nr, arguments);
}

/* The signal with which a stopped process goes on. */
static int Deliver(int status) {
  int signal = WSTOPSIG(status);
  if (status >> 16 || signal == SIGSTOP || signal == SIGTRAP) return 0; /* ptrace's own */
  return signal;
}

static int Follow(pid_t first) {
  int result = 1;
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, __WALL);
    if (pid < 0) return errno == ECHILD ? result : 1;
    if (WIFEXITED(status) && pid == first) result = WEXITSTATUS(status);
    if (!WIFSTOPPED(status)) continue;
    int signal = 0;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      OnSyscallStop(pid);
    } else {
      signal = Deliver(status);
    }
    ptrace(PTRACE_SYSCALL, pid, 0, (long)signal);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(kSkipped);
    raise(SIGSTOP);
    const char* preload = getenv("TRACED_LD_PRELOAD"); /* for the command, not for this program */
    if (preload) setenv("LD_PRELOAD", preload, 1);
    unsetenv("TRACED_LD_PRELOAD");
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  int status;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return kSkipped;
  long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                 PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, child, 0, options) != 0) {
    kill(child, SIGKILL);
    return kSkipped;
  }
  out_ = fopen(argv[1], "w");
  if (!out_) return 2;
  ptrace(PTRACE_SYSCALL, child, 0, 0);
  int result = Follow(child);
  return fclose(out_) == 0 ? result : 2;
}
