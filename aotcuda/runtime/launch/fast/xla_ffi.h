/* The structures of XLA's FFI that xla.c reads, from xla/ffi/api/c_api.h, version 0.3. Later versions 0.x append members.
 * tests/unit/test_jax_abi.py compares them with JAX's header.
 */
#ifndef AOTCUDA_XLA_FFI_H
#define AOTCUDA_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

typedef struct XlaExtension {
    size_t struct_size;
    int type; /* 1: metadata */
    struct XlaExtension *next;
} XlaExtension;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    int major, minor;
} XlaVersion;

typedef struct {
    size_t struct_size;
    XlaVersion version;
    uint32_t traits;
} XlaMetadata;

typedef struct {
    XlaExtension base;
    XlaMetadata *metadata;
} XlaMetadataExtension;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    const char *message;
    int code;
} XlaErrorArgs;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    void *context;
    void *stream; /* out */
} XlaStreamArgs;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    XlaVersion version;
    const void *internal;
    void *(*error_create)(XlaErrorArgs *);
    void *error_get_message;
    void (*error_destroy)(void *);
    void *handler_register;
    void *(*stream_get)(XlaStreamArgs *);
} XlaApi;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} XlaBuffer;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    int64_t size;
    int *types; /* 1: a buffer */
    void **values;
} XlaList;

typedef struct {
    const char *text;
    size_t length;
} XlaSpan;

typedef struct {
    int dtype;
    void *value;
} XlaScalar;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    int64_t size;
    int *types; /* 3: a scalar */
    XlaSpan **names;
    void **values;
} XlaAttributes;

typedef struct {
    size_t struct_size;
    XlaExtension *extension;
    const XlaApi *api;
    void *context;
    int stage; /* 3: execute */
    XlaList args, results;
    XlaAttributes attributes;
} XlaFrame;

enum { XLA_COMMAND_BUFFER_COMPATIBLE = 1 };
enum { XLA_METADATA = 1, XLA_BUFFER = 1, XLA_SCALAR = 3, XLA_S64 = 5, XLA_EXECUTE = 3, XLA_MAJOR = 0, XLA_MINOR = 3 };
enum { XLA_INVALID_ARGUMENT = 3, XLA_FAILED_PRECONDITION = 9, XLA_INTERNAL = 13 };

#endif
