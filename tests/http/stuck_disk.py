"""A file system (FUSE) whose files stop answering reads, as a disk or a network file system does that hangs. Copies a
directory's files into memory and serves them at a mount point until standard input ends. While the file HOLD exists, no
read is answered, and no question for the attributes of a file below a directory "asked"; what is in the page cache
already needs no read, and the kernel keeps the attributes of other files. Needs /dev/fuse and root.

    stuck_disk.py DIRECTORY MOUNT_POINT HOLD"""
import ctypes
import os
import select
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 26, 27, 28, 29, 34, 36, 38, 42
HEAD = struct.Struct("<IIQQIII4x")  # fuse_in_header
ENOENT, ENOSYS = 2, 38


class Node:
    def __init__(self, number, path, data=None):
        self.number, self.data, self.children = number, data, {}
        self.is_asked = data is not None and "asked" in path.split("/")
        self.valid_s = 0 if self.is_asked else 3600

    def attributes(self):
        size = len(self.data) if self.data is not None else 0
        mode = stat.S_IFREG | 0o644 if self.data is not None else stat.S_IFDIR | 0o755
        then = 1600000000
        return struct.pack("<QQQQQQIIIIIIIIII", self.number, size, (size + 511) // 512, then, then, then, 0, 0, 0, mode,
                           1, 0, 0, 0, 4096, 0)


def read_tree(directory):
    nodes = [None]

    def read(path):
        node = Node(len(nodes), path, None if os.path.isdir(path) else open(path, "rb").read())
        nodes.append(node)
        if node.data is None:
            for name in sorted(os.listdir(path)):
                node.children[name.encode()] = read(os.path.join(path, name))
        return node

    read(directory)
    return nodes


def entries(node):
    out = b""
    for i, (name, child) in enumerate(node.children.items(), 1):
        kind = 4 if child.data is None else 8
        out += struct.pack("<QQII", child.number, i, len(name), kind) + name + bytes(-len(name) % 8)
    return out


class Disk:
    def __init__(self, directory, mount_point, hold):
        self.nodes, self.hold, self.held = read_tree(directory), hold, []
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,max_read=131072" % self.fd
        if libc.mount(b"stuck", os.fsencode(mount_point), b"fuse", 6, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount")

    def reply(self, unique, data=b"", error=0):
        try:
            os.write(self.fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
        except OSError:
            pass  # the request was interrupted

    def read(self, unique, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        if os.path.exists(self.hold):
            self.held.append((self.read, unique, node, body))
        else:
            self.reply(unique, node.data[offset:offset + size])

    def get_attributes(self, unique, node, body):
        if node.is_asked and os.path.exists(self.hold):
            self.held.append((self.get_attributes, unique, node, body))
        else:
            self.reply(unique, struct.pack("<QII", node.valid_s, 0, 0) + node.attributes())

    def answer(self, request):
        _, opcode, unique, number, _, _, _ = HEAD.unpack_from(request)
        body = request[HEAD.size:]
        node = self.nodes[number] if number < len(self.nodes) else None
        if opcode == INIT:
            self.reply(unique, struct.pack("<IIIIHHIIHHI28x", 7, 31, 131072, 0, 64, 48, 131072, 1, 32, 0, 0))
        elif opcode == LOOKUP:
            child = node.children.get(body.rstrip(b"\0"))
            if child is None:
                self.reply(unique, error=ENOENT)
            else:
                self.reply(unique, struct.pack("<QQQQII", child.number, 0, 3600, child.valid_s, 0, 0) +
                           child.attributes())
        elif opcode == GETATTR:
            self.get_attributes(unique, node, body)
        elif opcode in (OPEN, OPENDIR):
            self.reply(unique, struct.pack("<QII", 0, 2, 0))
        elif opcode == READ:
            self.read(unique, node, body)
        elif opcode == READDIR:
            self.reply(unique, entries(node) if struct.unpack_from("<QQ", body)[1] == 0 else b"")
        elif opcode == STATFS:
            self.reply(unique, struct.pack("<QQQQQIII28x", 0, 0, 0, 0, 0, 4096, 255, 4096))
        elif opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            self.reply(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            self.reply(unique, error=ENOSYS)

    def run(self):
        while True:
            ready, _, _ = select.select([self.fd, sys.stdin], [], [], 0.05)
            if sys.stdin in ready:
                return
            if self.fd in ready:
                self.answer(os.read(self.fd, 1 << 18))
            if self.held and not os.path.exists(self.hold):
                held, self.held = self.held, []
                for answer, unique, node, body in held:
                    answer(unique, node, body)


if __name__ == "__main__":
    disk = Disk(*sys.argv[1:])
    print("mounted", flush=True)
    try:
        disk.run()
    finally:
        os.close(disk.fd)  # fails every read that is held back
        ctypes.CDLL(None).umount2(os.fsencode(sys.argv[2]), 2)
