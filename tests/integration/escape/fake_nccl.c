/* A library that exports ncclGetVersion, as NCCL does. A negative version: the call fails. */
__attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  if (FAKE_NCCL_VERSION < 0) return 1;
  *version = FAKE_NCCL_VERSION;
  return 0;
}
