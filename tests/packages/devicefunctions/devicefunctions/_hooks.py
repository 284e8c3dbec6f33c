import struct

calls = []


def upload(code):
    """Fill the table in csrc/table.cu, through the driver, in the module that `code` holds."""
    from cuda.bindings import driver

    calls.append("setup")
    status, address, size = driver.cuLibraryGetGlobal(driver.CUlibrary(int(code.handle)), b"table")
    assert status == driver.CUresult.CUDA_SUCCESS, status
    (status,) = driver.cuMemcpyHtoD(address, struct.pack("4f", 10, 20, 30, 40), size)
    assert status == driver.CUresult.CUDA_SUCCESS, status


def release(code):
    calls.append("teardown")
