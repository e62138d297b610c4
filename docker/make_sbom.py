#!/usr/bin/env python3
"""Writes the SBOM of the image: an SPDX 2.3 document in JSON.

docker/Dockerfile runs it during the build. It reads the image's root from a directory:

    make_sbom.py --root DIR --ldd FILE --binary PATH --version V [--revision R] --output FILE
        [--copied-from DIR --copied PACKAGE=PATH]

--ldd is what `ldd PATH` printed in that root. The document lists every package of dpkg's database, and with its package
each library that ldd names. --copied is a file that was copied from another root (--copied-from) without its package.
The exit status is 1 if a library belongs to no package. SOURCE_DATE_EPOCH, if it is set, is the time of creation.
Standard library only.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import time
import uuid
from pathlib import Path

MERGED = ("/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/")  # links into /usr on a Debian with a merged /usr


class SbomError(Exception):
    pass


def under_usr(path):
    """The path below /usr, where dpkg's lists and ldd may name either."""
    return "/usr" + path if path.startswith(MERGED) else path


def resolve(root, path):
    """Returns the path within root that all links lead to; absolute links start at root."""
    links, done, left = 0, "", path.strip("/").split("/")
    while left:
        part = left.pop(0)
        if part == "..":
            done = done.rpartition("/")[0]
        elif part not in ("", "."):
            here = Path(root + done + "/" + part)
            if here.is_symlink():
                links += 1
                if links > 40:
                    raise SbomError(f"too many links: {path}")
                target = os.readlink(here)
                done = "" if target.startswith("/") else done
                left = target.split("/") + left
            else:
                done += "/" + part
    return done


def read_status(root):
    """Returns the fields of each installed package, by its name, from dpkg's database."""
    packages = {}
    for stanza in (Path(root) / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            packages[fields["Package"]] = fields
    if not packages:
        raise SbomError(f"no package is installed in {root}")
    return packages


def read_owners(root):
    """Returns the package of every file that dpkg knows."""
    owners = {}
    for listing in sorted((Path(root) / "var/lib/dpkg/info").glob("*.list")):
        package = listing.name[: -len(".list")].partition(":")[0]
        for path in listing.read_text().splitlines():
            owners[under_usr(path)] = package
    return owners


def read_libraries(root, text):
    """Returns the files of the libraries that ldd printed, without the kernel's own (linux-vdso)."""
    libraries = []
    for line in text.splitlines():
        found = re.fullmatch(r"\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)", line)
        if found:
            libraries.append(resolve(root, found[1]))
        elif not re.fullmatch(r"\s*linux-vdso\S* \(0x[0-9a-f]+\)", line):
            raise SbomError(f"ldd says what is no library that was found: {line.strip()}")
    if not libraries:
        raise SbomError("ldd names no library")
    return sorted(set(libraries))


def identifier(kind, name):
    """An SPDX identifier: letters, digits, dots and hyphens."""
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.]", "-", name)


def package_entry(fields):
    name, version = fields["Package"], fields["Version"]
    source = fields.get("Source", name)
    if "(" not in source:
        source += f" ({version})"
    quoted = version.replace(":", "%3A").replace("+", "%2B")
    return {
        "SPDXID": identifier("Package", name),
        "name": name,
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "comment": f"licences: /usr/share/doc/{name}/copyright",
        "sourceInfo": f"built from Debian's source package {source}",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{quoted}?arch={fields['Architecture']}",
        }],
    }


def file_entry(root, path):
    data = Path(root + path).read_bytes()
    return {
        "SPDXID": identifier("File", path.strip("/")),
        "fileName": "." + path,
        "checksums": [{"algorithm": name.upper(), "checksumValue": hashlib.new(name, data).hexdigest()}
                      for name in ("sha1", "sha256")],
        "licenseConcluded": "NOASSERTION",
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def program_entry(version, revision):
    entry = {
        "SPDXID": "SPDXRef-Package-tensord",
        "name": "tensord",
        "versionInfo": version,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }
    if revision:
        entry["sourceInfo"] = f"built from revision {revision}"
    return entry


def relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def make(options):
    """Returns the document."""
    root = options.root.rstrip("/")
    packages, owners = read_status(root), read_owners(root)
    libraries = read_libraries(root, Path(options.ldd).read_text())
    program, relations = "SPDXRef-Package-tensord", []
    files = [file_entry(root, options.binary)]
    relations.append(relation(files[0]["SPDXID"], "GENERATED_FROM", program))
    for path in libraries:
        if owners.get(under_usr(path)) not in packages:
            raise SbomError(f"{path} belongs to no package")
        files.append(file_entry(root, path))
        owner = identifier("Package", owners[under_usr(path)])
        relations.append(relation(files[-1]["SPDXID"], "GENERATED_FROM", owner))
        relations.append(relation(files[0]["SPDXID"], "DYNAMIC_LINK", files[-1]["SPDXID"]))
    for copied in options.copied:
        name, _, path = copied.partition("=")
        packages[name] = read_status(options.copied_from)[name]
        files.append(file_entry(root, path))
        relations.append(relation(files[-1]["SPDXID"], "GENERATED_FROM", identifier("Package", name)))
    entries = [program_entry(options.version, options.revision)]
    entries += [package_entry(packages[name]) for name in sorted(packages)]
    relations += [relation(program, "DEPENDS_ON", entry["SPDXID"]) for entry in entries[1:]]
    created = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    content = json.dumps([entries, files, relations], sort_keys=True)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tensord-{options.version}-image",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created)),
            "creators": ["Tool: tensord-make_sbom.py"],
        },
        "documentDescribes": [program],
        "packages": entries,
        "files": files,
        "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", program), *relations],
    }


def main():
    parser = argparse.ArgumentParser(description="Writes the SBOM of the image, SPDX 2.3 in JSON.")
    for name in ("--root", "--ldd", "--binary", "--version", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--revision", default="")
    parser.add_argument("--copied-from", default="/")
    parser.add_argument("--copied", action="append", default=[], metavar="PACKAGE=PATH")
    options = parser.parse_args()
    try:
        text = json.dumps(make(options), indent=1) + "\n"
    except (SbomError, OSError) as error:
        sys.exit(f"make_sbom.py: {error}")
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    Path(options.output).write_text(text)


if __name__ == "__main__":
    main()
