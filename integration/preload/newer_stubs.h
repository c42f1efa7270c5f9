/* How many functions newer than the tables are handed out behind a stub; for C and for assembly. A runtime asks
 * for some 460 names, of which a driver that is years ahead may bring a third in two forms. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_
#define SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_

#define SPILLWAY_NEWER_STUBS 512
/* The most that is kept of vector registers around a first call. */
#define SPILLWAY_NEWER_STATE_BYTES 4096

#endif /* SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_ */
