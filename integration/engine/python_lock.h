// PythonLock releases Python's lock (the GIL) while a thread of the job waits for long inside a launch, so
// that the process's other Python threads go on. Python is looked up in the process. If there is none, or the
// thread does not have the lock, nothing is done. Any thread may create one; an object belongs to its thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_PYTHON_LOCK_H_
#define SPILLWAY_INTEGRATION_ENGINE_PYTHON_LOCK_H_

namespace spillway::integration {

class PythonLock {
 public:
  // Releases the lock if this thread has it.
  PythonLock();
  // Takes the lock again; waits for it.
  ~PythonLock();
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

  bool let_go() const { return state_ != nullptr; }

 private:
  void* state_ = nullptr;  // Python's state of this thread
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_PYTHON_LOCK_H_
