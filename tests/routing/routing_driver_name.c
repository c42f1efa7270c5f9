/* Nothing but a name for the linker: libcudb.so.1. */
extern const int routing_driver_name;
const int routing_driver_name = 1;
